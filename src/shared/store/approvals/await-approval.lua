-- Lets a call wait for a person's decision on its approval.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 its generation  3 approval (JSON)  4 its signature  5 its ID  6 its expiry  7 its time to live after that, ms
local approvals, id, expiresAt, now = KEYS[1] .. APPROVALS, ARGV[5], ARGV[6], nowMs()
local approval = approvals .. ':' .. id
redis.call('HSET', KEYS[1] .. RECORDS .. ARGV[1], 'phase', 'awaiting-approval', 'approval', id)
redis.call('HSET', approval, 'state', 'pending', 'request', ARGV[3], 'signature', ARGV[4], 'generation', ARGV[2], 'expiresAtMs', expiresAt)
redis.call('PEXPIREAT', approval, expiresAt + ARGV[7])
redis.call('ZADD', approvals .. 's', now, id)
redis.call('ZADD', approvals .. 's:pending', expiresAt, id)
redis.call('ZREMRANGEBYSCORE', approvals .. 's', '-inf', now - 2 * ARGV[7])
