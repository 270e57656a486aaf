-- Cancels a call that waits; requests that the worker of a running one stops.
--
-- KEYS  1 record  2 in-flight index  3 index of calls in doubt  4 key prefix of the queue  5 base of the partition's keys
-- ARGV  1 call ID  2 outcome of a call that never ran (JSON)  3 outcome of one that waits for its next attempt (JSON)
--       4 state to end in  5 time to live, ms  6 inbox ID of the producer that waits  7 key prefix of inboxes  8 broadcast channel
--       9, 10 signatures of the two outcomes  11 key prefix of approvals  12 time to live of an approval, ms
--       13 token: a script that runs twice, because its first answer was lost, answers the same
--       14 outcome of a call with an attempt that may have had its effect (JSON)  15 its signature  16 its time to live, ms
--       17 time until the key of a call without such an attempt may run again, ms, '' for that of the record
--       18 how long a failed call is a dead letter, ms, '' for never
-- Returns {code, now, …}:
--   cancelled  the call ended now                         requested: its worker was notified
--   pending    its own expiry ends it, not its deadline
--   too-late   state: it had ended before                gone: there is no such record
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'phase', 'generation', 'inboxes', 'fence', 'approval', 'paramsAt', 'endedBy',
  'attempts', 'callback')
if not fields[1] then return {'gone', now} end
if fields[8] == ARGV[13] then return {'cancelled', now} end
if fields[1] ~= 'inflight' then return {'too-late', now, fields[1]} end
if fields[2] == 'running' then
  -- A deadline neither requests nor withdraws a cancellation: the worker watches the deadline itself.
  if ARGV[4] == 'cancelled' then redis.call('HSET', KEYS[1], 'cancelRequested', '1') end
  redis.call('HSET', KEYS[1], 'inboxes', withInbox(fields[4], ARGV[6]))
  redis.call('PUBLISH', ARGV[8], '{"type":"cancel","callId":"' .. ARGV[1] .. '","because":"' .. ARGV[4] .. '"}')
  return {'requested', now}
end
if fields[2] == 'pending' and ARGV[4] ~= 'cancelled' then return {'pending', now} end
local outcome, signature, ttl, freeAfter = ARGV[2], ARGV[9], ARGV[5], ARGV[17]
if fields[5] then outcome, signature = ARGV[3], ARGV[10] end
-- Ignores attempts that an operator has resolved.
local attempts = string.gsub(fields[9] or '', '[^\n]*,"resolved":true[^\n]*\n', '')
if fields[2] == 'pending' or attempts:find('"inDoubt":true', 1, true) or attempts:find('"status":"lost"', 1, true) then
  outcome, signature, ttl = ARGV[14], ARGV[15], ARGV[16]
  if isUnresolved(ARGV[4], outcome) then freeAfter = '' end
end
if fields[2] == 'awaiting-approval' then
  local approval = ARGV[11] .. ':' .. fields[6]
  redis.call('HSET', approval, 'state', 'cancelled', 'decidedAtMs', now)
  redis.call('PEXPIRE', approval, ARGV[12])
  redis.call('ZREM', ARGV[11] .. 's:pending', fields[6])
end
if fields[2] == 'pending' then
  redis.call('ZREM', KEYS[5] .. PENDING, ARGV[1])
  redis.call('HDEL', KEYS[1], 'pendingUntilMs', 'pendingNumber', 'onExpiry')
end
if fields[2] == 'awaiting-approval' or fields[2] == 'delayed' or fields[2] == 'pending' then
  -- Until it is due, the job would be counted as one that waits for a retry.
  local job = ARGV[1] .. '.' .. fields[3]
  if redis.call('ZREM', KEYS[4] .. 'delayed', job) == 1 then redis.call('DEL', KEYS[4] .. job) end
end
local expiresAt = text(now + ttl)
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'outcome', outcome, 'outcomeSignature', signature, 'retriable', '0', 'updatedAtMs', now,
  'endedBy', ARGV[13])
if freeAfter ~= '' then redis.call('HSET', KEYS[1], 'freeAtMs', text(now + freeAfter)) end
redis.call('HDEL', KEYS[1], 'phase', 'inboxes', 'notBeforeMs', 'checkpoint')
nextVersion(KEYS[1])
redis.call('PEXPIREAT', KEYS[1], expiresAt)
if fields[7] then redis.call('PEXPIREAT', fields[7], expiresAt) end
redis.call('ZREM', KEYS[2], ARGV[1])
if isUnresolved(ARGV[4], outcome) then redis.call('ZADD', KEYS[3], expiresAt, ARGV[1]) end
if ARGV[4] == 'failed' and ARGV[18] ~= '' then add_dead_letter({KEYS[5]}, {ARGV[1], text(now), ARGV[18]}) end
if fields[10] then add_callback({string.sub(KEYS[1], 1, -1 - #RECORDS - #ARGV[1])}, {ARGV[1], ARGV[4], outcome, signature, false}) end
notify(withInbox(fields[4], ARGV[6]), ARGV[7], settledEvent(ARGV[1], ARGV[4], signature, outcome, now))
return {'cancelled', now}
