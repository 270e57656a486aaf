// Makes the secrets of the composed stack, once, each into the volume of the service that needs it: nothing to prepare by
// hand, and no service sees another's. What is there already stays; `PAWL_API_TOKENS` and `PAWL_SIGNING_KEYS` of the
// environment win. Runs as the one-shot service `secrets`.
//
//   node secrets.mjs FOLDER      FOLDER/redis, FOLDER/api, FOLDER/board, FOLDER/worker-<tier>

import { createHash, randomBytes } from 'node:crypto';
import { chownSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

const TIERS = ['read-only', 'workspace', 'system', 'elevated'];
const REDIS_ADDRESS = process.env.PAWL_REDIS_ADDRESS ?? 'redis:6379';
const PREFIX = process.env.PAWL_PREFIX ?? 'pawl';
/** The image's user `node`; only root can give files away. */
const OWNER = process.getuid?.() === 0 ? 1000 : undefined;

const folder = process.argv[2];
if (folder === undefined) {
  process.stderr.write('usage: node secrets.mjs FOLDER\n');
  process.exit(2);
}

/** Commands of a process that takes part: records, queues, scripts, news; nothing that administers Redis. */
const TAKES_PART =
  '-@all +@read +@write +@scripting +@pubsub +@connection +@blocking +@stream +@transaction -@dangerous +time +info +config|get +acl|dryrun +waitaof';
/** Commands of one that only looks. Its scripts may run, and fail where they write: the keys are readable, not writable. */
const LOOKS = '-@all +@read +@connection +eval +evalsha -@dangerous +info +time';

/** What the whole fleet shares: workers and tools, sessions, turns at resources, limits, budgets, calls that clients run, the audit trail. */
const SHARED = ['{fleet}*', '{turns}*', '{limit:*', '{budget}*', '{clients}*', '{audit}*']
  .map((keys) => `~${PREFIX}:${keys}`)
  .join(' ');

/** Redis' users by name: who may touch which keys, with which commands. */
const USERS = {
  // The API: hands calls in for every tier, and keeps the approvals.
  api: `~${PREFIX}:* &${PREFIX}:* ${TAKES_PART}`,
  // An orchestrator of your own that hands calls in without the API.
  producer: `~${PREFIX}:* &${PREFIX}:* ${TAKES_PART}`,
  board: `%R~${PREFIX}:* &${PREFIX}:* ${LOOKS}`,
  // A worker reaches its own tier's queue and ledger, and what the fleet shares; never another tier's.
  ...Object.fromEntries(
    TIERS.map((tier) => [
      `worker-${tier}`,
      `~${PREFIX}:{${tier}}* ~${PREFIX}:{${tier}.* ${SHARED} &${PREFIX}:* ${TAKES_PART}`,
    ]),
  ),
};

const passwords = Object.fromEntries(
  Object.keys(USERS).map((user) => [user, once(join(folder, 'redis', `${user}.password`), 0o600, secret)]),
);
const acl = [
  // No client can log in as it. Its rights are those with which Redis loads what scripts wrote, when it starts again.
  'user default off resetpass ~* &* +@all',
  // What the health check asks as: it can say hello, and nothing else.
  'user health on nopass resetkeys resetchannels -@all +ping',
  ...Object.entries(USERS).map(
    ([user, rights]) => `user ${user} on #${sha256(passwords[user])} resetkeys resetchannels ${rights}`,
  ),
];
write(join(folder, 'redis', 'users.acl'), `${acl.join('\n')}\n`, 0o644);

const signingKeys =
  process.env.PAWL_SIGNING_KEYS || once(join(folder, 'api', 'signing-keys'), 0o440, () => `first:${secret()}`);
const apiTokens =
  process.env.PAWL_API_TOKENS ||
  once(join(folder, 'api', 'api-tokens'), 0o440, () =>
    ['agent', 'approver', 'operator', 'admin'].map((role) => `${secret()}:${role}`).join(','),
  );
write(join(folder, 'api', 'signing-keys'), signingKeys, 0o440);
write(join(folder, 'api', 'api-tokens'), apiTokens, 0o440);
write(join(folder, 'api', 'redis-url'), redisUrl('api'), 0o440);
write(join(folder, 'api', 'board-redis-url'), redisUrl('board'), 0o440);
/** What a worker publishes is signed with a key of its tier; the API has those of all tiers. */
const workerKeys = TIERS.map((tier) =>
  once(join(folder, `worker-${tier}`, 'worker-keys'), 0o440, () => `${tier}=${tier}-1:${secret()}`),
);
write(join(folder, 'api', 'worker-keys'), workerKeys.join(','), 0o440);
for (const tier of TIERS) {
  write(join(folder, `worker-${tier}`, 'signing-keys'), signingKeys, 0o440);
  write(join(folder, `worker-${tier}`, 'redis-url'), redisUrl(`worker-${tier}`), 0o440);
}

function redisUrl(user) {
  return `redis://${user}:${passwords[user]}@${REDIS_ADDRESS}`;
}

function secret() {
  return randomBytes(32).toString('base64url');
}

function sha256(text) {
  return createHash('sha256').update(text).digest('hex');
}

/** What the file holds, or what `make` makes of it now. */
function once(file, mode, make) {
  if (!existsSync(file)) write(file, make(), mode);
  return readFileSync(file, 'utf8');
}

/** Aside first: a reader never meets half a file. Readable by the service's user, who is not root. */
function write(file, text, mode) {
  const service = dirname(file);
  mkdirSync(service, { recursive: true });
  writeFileSync(`${file}.new`, text, { mode });
  if (OWNER !== undefined && basename(service) !== 'redis') {
    chownSync(service, OWNER, OWNER);
    chownSync(`${file}.new`, OWNER, OWNER);
  }
  renameSync(`${file}.new`, file);
}
