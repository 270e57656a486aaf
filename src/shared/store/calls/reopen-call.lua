-- Lets an ended call run again: removes its outcome and keeps its attempts. With an approval, the call waits for a person's decision.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 new generation  3.. the approval, the arguments of await_approval; absent without one
local base, callId = KEYS[1], ARGV[1]
local record = base .. RECORDS .. callId
local paramsAt, large = unpack(redis.call('HMGET', record, 'paramsAt', 'outcomeAt'))
redis.call('HSET', record, 'state', 'inflight', 'phase', 'queued', 'lost', 0, 'blamed', 0, 'lostAlone', 0, 'poison', '0')
redis.call('HDEL', record, 'outcome', 'outcomeSignature', 'outcomeAt', 'outcomeParts', 'retriable', 'firstStartedAtMs',
  'startedAtMs', 'cancelRequested', 'endedBy', 'freeAtMs')
if large then redis.call('UNLINK', large) end
redis.call('PERSIST', record)
if paramsAt then redis.call('PERSIST', paramsAt) end
redis.call('ZADD', base .. INFLIGHT, nowMs(), callId)
redis.call('ZREM', base .. IN_DOUBT, callId)
remove_dead_letter(KEYS, ARGV)
if ARGV[3] then await_approval(KEYS, ARGV) end
