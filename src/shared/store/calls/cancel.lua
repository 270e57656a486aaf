-- Cancels a call that waits; requests that the worker of a running one stops.
--
-- KEYS  1 base of the partition's keys  2 key prefix of the queue
-- ARGV  1 call ID  2 outcome of a call that never ran (JSON)  3 outcome of one that waits for its next attempt (JSON)
--       4 state to end in  5 time to live, ms  6 inbox ID of the producer that waits  7 broadcast channel
--       8, 9 signatures of the two outcomes  10 time to live of an approval, ms
--       11 token: a script that runs twice, because its first answer was lost, answers the same
--       12 outcome of a call with an attempt that may have had its effect (JSON)  13 its signature  14 its time to live, ms
--       15 time until the key of a call without such an attempt may run again, ms, '' for that of the record
--       16 how long the call is a dead letter, ms, '' for never
-- Returns {code, now, …}:
--   cancelled  the call ended now                         requested: its worker was notified
--   pending    its own expiry ends it, not its deadline
--   too-late   state: it had ended before                gone: there is no such record
local base, callId, now = KEYS[1], ARGV[1], nowMs()
local record = base .. RECORDS .. callId
local fields = redis.call('HMGET', record, 'state', 'phase', 'generation', 'inboxes', 'fence', 'approval', 'endedBy', 'attempts')
if not fields[1] then return {'gone', now} end
if fields[7] == ARGV[11] then return {'cancelled', now} end
if fields[1] ~= 'inflight' then return {'too-late', now, fields[1]} end
local phase = fields[2]
if phase == 'pending' and ARGV[4] ~= 'cancelled' then return {'pending', now} end
redis.call('HSET', record, 'inboxes', withInbox(fields[4], ARGV[6]))
if phase == 'running' then
  -- A deadline neither requests nor withdraws a cancellation: the worker watches the deadline itself.
  if ARGV[4] == 'cancelled' then redis.call('HSET', record, 'cancelRequested', '1') end
  redis.call('PUBLISH', ARGV[7], '{"type":"cancel","callId":"' .. callId .. '","because":"' .. ARGV[4] .. '"}')
  return {'requested', now}
end
local outcome, signature, ttl, freeAfter = ARGV[2], ARGV[8], ARGV[5], ARGV[15]
if fields[5] then outcome, signature = ARGV[3], ARGV[9] end
-- Ignores attempts that an operator has resolved.
local attempts = string.gsub(fields[8] or '', '[^\n]*,"resolved":true[^\n]*\n', '')
if phase == 'pending' or attempts:find('"inDoubt":true', 1, true) or attempts:find('"status":"lost"', 1, true) then
  outcome, signature, ttl = ARGV[12], ARGV[13], ARGV[14]
  if isUnresolved(ARGV[4], outcome) then freeAfter = '' end
end
if phase == 'awaiting-approval' then
  local approval = base .. APPROVALS .. ':' .. fields[6]
  redis.call('HSET', approval, 'state', 'cancelled', 'decidedAtMs', now)
  redis.call('PEXPIRE', approval, ARGV[10])
  redis.call('ZREM', base .. APPROVALS .. 's:pending', fields[6])
end
if phase == 'pending' then
  redis.call('ZREM', base .. PENDING, callId)
  redis.call('HDEL', record, 'pendingUntilMs', 'pendingNumber', 'onExpiry')
end
if phase == 'awaiting-approval' or phase == 'delayed' or phase == 'pending' then
  -- Until it is due, the job would be counted as one that waits for a retry.
  local job = callId .. '.' .. fields[3]
  if redis.call('ZREM', KEYS[2] .. 'delayed', job) == 1 then redis.call('DEL', KEYS[2] .. job) end
end
redis.call('HSET', record, 'endedBy', ARGV[11])
end_call({base}, {callId, ARGV[4], outcome, signature, ttl, freeAfter, ARGV[16]})
return {'cancelled', now}
