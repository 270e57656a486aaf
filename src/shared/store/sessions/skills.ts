/** The records of skills, by name. Sessions hold a copy of what they need, so changes are not broadcast. */
import type { SkillRecord } from '../../sessions/skill.ts';
import { replaceField } from '../redis/compare-and-set.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { reSignFields } from '../signing/re-sign.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

export class SkillRecords extends FleetRecords {
  async write(record: SkillRecord): Promise<void> {
    await this.redis.hset(this.keys.skills, record.name, this.#signed(record));
  }

  async read(name: string): Promise<SkillRecord | undefined> {
    const stored = await this.redis.hget(this.keys.skills, name);
    return stored === null ? undefined : this.#opened(name, stored);
  }

  async list(): Promise<SkillRecord[]> {
    const stored = await this.redis.hgetall(this.keys.skills);
    return Object.entries(stored).flatMap(([name, text]) => this.#opened(name, text) ?? []);
  }

  /** False when there is none. */
  async remove(name: string): Promise<boolean> {
    const stored = await this.redis.hget(this.keys.skills, name);
    return stored !== null && replaceField(this.redis, this.keys.skills, { field: name, expected: stored });
  }

  /** With the newest key. */
  reSign(): Promise<void> {
    return reSignFields(this.redis, this.keys.skills, (name, stored) => {
      const record = this.#opened(name, stored);
      return record === undefined ? undefined : this.#signed(record);
    });
  }

  #signed(record: SkillRecord): string {
    return signedText(this.signatures, 'spec', signedName(record.name), record);
  }

  /** The record, when a key of this fleet signed it under this name. */
  #opened(name: string, stored: string): SkillRecord | undefined {
    return verifiedText(this.signatures, 'spec', signedName(name), stored);
  }
}

function signedName(name: string): string {
  return `skill ${name}`;
}
