-- Ends a call by a decision: a cancellation, a person's decision on its approval, or an operator's resolution.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 state to end in  3 outcome (JSON)  4 its signature  5 time to live, ms
--       6 time until the call's key may run again, ms, '' for that of the record  7 how long it is a dead letter, ms, '' for never
local base, callId, state, outcome, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3], nowMs()
local record, expiresAt = base .. RECORDS .. callId, text(now + ARGV[5])
local paramsAt, callback, inboxes = unpack(redis.call('HMGET', record, 'paramsAt', 'callback', 'inboxes'))
redis.call('HSET', record, 'state', state, 'outcome', outcome, 'outcomeSignature', ARGV[4], 'retriable', '0', 'updatedAtMs', now)
if ARGV[6] ~= '' then redis.call('HSET', record, 'freeAtMs', text(now + ARGV[6])) end
redis.call('HDEL', record, 'phase', 'inboxes', 'notBeforeMs', 'checkpoint')
nextVersion(record)
redis.call('PEXPIREAT', record, expiresAt)
if paramsAt then redis.call('PEXPIREAT', paramsAt, expiresAt) end
redis.call('ZREM', base .. INFLIGHT, callId)
redis.call('ZREM', base .. IN_DOUBT, callId)
if isUnresolved(state, outcome) then redis.call('ZADD', base .. IN_DOUBT, expiresAt, callId) end
if ARGV[7] ~= '' then add_dead_letter({base}, {callId, text(now), ARGV[7]}) end
if callback then add_callback({base}, {callId, state, outcome, ARGV[4], false}) end
notify(inboxes, base .. INBOXES, settledEvent(callId, state, ARGV[4], outcome, now))
