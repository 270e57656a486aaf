import { LocalResourceLocks } from '../../src/local/resource-locks.ts';
import { jobFor, turnsBehave } from '../conformance/turns.ts';

turnsBehave(async (names) => {
  const locks = new LocalResourceLocks();
  const told: string[] = [];
  const gone = new Set<string>();
  const listening = new Set<string>();
  return {
    locks: {
      renew: () => locks.renew(),
      release: (job) => {
        gone.add(job.callId);
        return locks.release(job);
      },
      async acquire(job, fence, turn, any) {
        const answer = await locks.acquire(job, fence, turn, any);
        const name = names.find((candidate) => jobFor(candidate).callId === job.callId) ?? '';
        if (answer.kind === 'waiting' && !listening.has(name)) {
          listening.add(name);
          void locks.granted(job.callId).then(() => told.push(name));
        }
        return answer;
      },
    },
    called: async () => {
      await new Promise(setImmediate);
      return told.splice(0).filter((name) => !gone.has(jobFor(name).callId));
    },
  };
});
