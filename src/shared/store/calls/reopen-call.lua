-- Lets an ended call run again: removes its outcome and keeps its attempts. With an approval, the call waits for a person's decision.
--
-- KEYS  1 record  2 in-flight index  3 index of calls in doubt  4 base of the partition's keys
-- ARGV  1 call ID  2 new generation  3 key prefix of approvals  4 approval (JSON), '' for none  5 its signature  6 its ID
--       7 its expiry  8 its time to live after that, ms
local record, now = KEYS[1], nowMs()
local paramsAt, large = unpack(redis.call('HMGET', record, 'paramsAt', 'outcomeAt'))
redis.call('HSET', record, 'state', 'inflight', 'phase', 'queued', 'lost', 0, 'blamed', 0, 'lostAlone', 0, 'poison', '0')
redis.call('HDEL', record, 'outcome', 'outcomeSignature', 'outcomeAt', 'outcomeParts', 'retriable', 'firstStartedAtMs',
  'startedAtMs', 'cancelRequested', 'endedBy', 'freeAtMs')
if large then redis.call('UNLINK', large) end
redis.call('PERSIST', record)
if paramsAt then redis.call('PERSIST', paramsAt) end
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
remove_dead_letter({KEYS[4]}, {ARGV[1]})
if ARGV[4] == '' then return end
local approvals, id, expiresAt = ARGV[3], ARGV[6], ARGV[7]
local approval = approvals .. ':' .. id
redis.call('HSET', record, 'phase', 'awaiting-approval', 'approval', id)
redis.call('HSET', approval, 'state', 'pending', 'request', ARGV[4], 'signature', ARGV[5], 'generation', ARGV[2], 'expiresAtMs', expiresAt)
redis.call('PEXPIREAT', approval, expiresAt + ARGV[8])
redis.call('ZADD', approvals .. 's', now, id)
redis.call('ZADD', approvals .. 's:pending', expiresAt, id)
