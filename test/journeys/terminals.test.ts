/** C16: a program that one worker started is found again by calls that run on another. */
import { randomInt } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { ToolResultEnvelope } from '../../src/index.ts';
import type { Session } from '../../src/producer/sessions/session.ts';
import type { TestProcess } from '../helpers/process.ts';
import { eventually } from '../helpers/signal.ts';
import { type Fleet, SHORT_LOCK_MS, startFleet } from './fixtures/fleet.ts';

interface Output {
  readonly session_id: string | null;
  readonly exit_code: number | null;
  readonly output: string;
}

function outputOf(result: ToolResultEnvelope): Output {
  expect(result.status, result.error?.message).toBe('success');
  return result.output?.content as Output;
}

/** Types and reads until the program wrote `wanted`. */
async function converse(session: Session, id: string, chars: string, wanted: string): Promise<string> {
  let text = '';
  let typed = chars;
  await eventually(
    async () => {
      const result = await session.call('write_stdin', { session_id: id, chars: typed, yield_time_ms: 20 });
      typed = '';
      text += outputOf(result).output;
      return text.includes(wanted);
    },
    { what: wanted },
  );
  return text;
}

/** Whose child, at whatever depth, has `token` in its command line. */
function workerWith(fleet: Fleet, token: string): TestProcess | undefined {
  for (const id of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      if (!readFileSync(`/proc/${id}/cmdline`, 'utf8').includes(token)) continue;
      for (
        let at = Number(id);
        at > 1;
        at = Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${at}/status`, 'utf8'))?.[1])
      ) {
        const worker = fleet.workers.find(({ pid }) => pid === at);
        if (worker !== undefined) return worker;
      }
    } catch {
      // It has ended meanwhile.
    }
  }
  return undefined;
}

function running(token: string): boolean {
  return readdirSync('/proc').some((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`, 'utf8').includes(token);
    } catch {
      return false;
    }
  });
}

const COUNTER = 'n=0; while read line; do n=$((n + 1)); echo "$n: $line"; done; exit 4';

test('twenty lines typed through two workers reach the one program, each once; kill -9 of its worker leaves nothing', async () => {
  const fleet = await startFleet({ workers: 2, lockDurationMs: SHORT_LOCK_MS, script: './base-worker.ts' });
  const { session } = fleet;
  const token = `1000.${randomInt(1e9, 1e10)}`;
  const counter = outputOf(await session.call('exec_command', { cmd: COUNTER, yield_time_ms: 0 }));
  const sleeper = outputOf(
    await session.call('exec_command', { cmd: `sleep ${token} & (setsid sleep ${token} &); cat`, yield_time_ms: 0 }),
  );
  const id = counter.session_id ?? '';
  const allTyped = () => fleet.workers.every((worker) => worker.stdout().includes('began write_stdin'));
  for (let line = 1; line <= 20 || !allTyped(); line += 1)
    await converse(session, id, `line ${line}\n`, `${line}: line ${line}\r\n`);
  for (const worker of fleet.workers) expect(worker.stdout()).toContain('began write_stdin');
  const calls = await fleet.pawl.calls.list({ limit: 500 });
  expect(calls.filter(({ attempts }) => attempts.length > 1)).toEqual([]);

  const other = await fleet.pawl.openSession({ workspaceRoot: fleet.folder });
  const foreign = await other.call('write_stdin', { session_id: id, chars: 'x\n' });
  expect(foreign.error).toMatchObject({ code: 'NOT_FOUND' });

  const ended = await session.call('write_stdin', { session_id: id, chars: '\u0004', yield_time_ms: 10_000 });
  expect(ended.output?.content).toMatchObject({ session_id: null, exit_code: 4 });
  const gone = await session.call('write_stdin', { session_id: id });
  expect(gone.error).toMatchObject({ code: 'NOT_FOUND' });

  const owner = await eventually(() => workerWith(fleet, token));
  await owner.kill();
  await eventually(() => !running(token), { what: 'the end of what the killed worker ran' });
  // The other worker is asked at once; the calls that the dead one took are theirs who take them over.
  const lost = await session.call('write_stdin', { session_id: sleeper.session_id ?? '', chars: 'x\n' });
  expect(['TERMINAL_UNREACHABLE', 'NOT_FOUND']).toContain(lost.error?.code);
});

test('a drained worker, and a closed session, end their programs', async () => {
  const fleet = await startFleet({ workers: 1, script: './base-worker.ts' });
  const token = `1000.${randomInt(1e9, 1e10)}`;
  const branch = await fleet.session.branch();
  const mine = outputOf(await fleet.session.call('exec_command', { cmd: `sleep ${token}1`, yield_time_ms: 0 }));
  outputOf(await branch.call('exec_command', { cmd: `sleep ${token}2`, yield_time_ms: 0 }));
  await eventually(() => running(`${token}1`) && running(`${token}2`));
  await branch.close();
  await eventually(() => !running(`${token}2`), { what: 'the end of the branch’s program' });
  expect(running(`${token}1`)).toBe(true);
  const [worker] = fleet.workers;
  worker?.signal('SIGTERM');
  await worker?.line('drained');
  expect(running(`${token}1`)).toBe(false);
  expect((await fleet.world.keys()).filter((key) => key.includes(mine.session_id ?? '-'))).toEqual([]);
});
