/**
 * A mover that is killed: `node dying-mover.ts REDIS_URL PREFIX FOLDER STEP WHEN` kills itself with SIGKILL before or after its first step of
 * this name.
 */
import { FileBlobs } from '../../../../src/shared/store/blobs/file-blobs.ts';
import { Ledger } from '../../../../src/shared/store/calls/ledger.ts';
import { openConnection } from '../../../../src/shared/store/redis/connection.ts';
import { Script } from '../../../../src/shared/store/redis/script.ts';
import { SegmentMover } from '../../../../src/shared/store/segments/segment-mover.ts';

const [, , url = '', prefix = '', folder = '', step = '', when = ''] = process.argv;
const redis = openConnection({ url, name: `${prefix}:dying`, mode: 'patient' });
const store = new FileBlobs(folder);

/** Dies around the function of an object when it is called for this step. */
function dieAt(target: object, name: string, isStep: (by: object) => boolean): void {
  const made = Reflect.get(target, name) as (...args: unknown[]) => Promise<unknown>;
  Reflect.set(target, name, async function dying(this: object, ...args: unknown[]) {
    if (!isStep(this)) return made.apply(this, args);
    if (when === 'before') process.kill(process.pid, 'SIGKILL');
    const answer = await made.apply(this, args);
    process.kill(process.pid, 'SIGKILL');
    return answer;
  });
}

if (step === 'put') dieAt(store, 'put', () => true);
else dieAt(Script.prototype, 'run', (by) => (by as Script).name === step);

const { access } = new Ledger(redis, prefix, 24 * 3_600_000);
access.blobs.keepIn(store);
const { blobs, segments } = access;
const mover = new SegmentMover({ redis, blobs, segments, afterMs: 0 });
await mover.run(access.keys({ tier: 'workspace', shard: 0 }), Date.now());
// A mover without such a step ends by itself.
redis.disconnect();
