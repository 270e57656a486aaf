-- Decides an approval, once. An approved call is enqueued, or delayed until its start; any other decision ends the call. The call of a plan,
-- which no worker runs, always ends.
--
-- KEYS  1 approval  2 index of pending approvals  3 the call's record  4 in-flight index  5 the job that waits  6 delayed jobs
--       7 index of calls in doubt  8 base of the partition's keys
-- ARGV  1 approval ID  2 state: approved, denied or expired  3 decision (JSON), '' for none  4 its signature  5 call ID
--       6 time to live of the approval, ms  7 outcome (JSON), '' for a call that runs now  8 its signature  9 its time to live, ms
--       10 key prefix of inboxes  11 new generation  12 signature of the request under it  13 ID of the job that waits
--       14 token: a script that runs twice, because its first answer was lost, answers the same
--       15 time until the call's key may run again, ms, '' for that of the record
--       16 how long a failed call is a dead letter, ms, '' for never
--       17 key prefix of the queue  18.. the job, the arguments of enqueue
-- Returns {code, now, …}:
--   decided
--   already    state: it was decided before, or the call ended
--   late       its time is over: let it expire    early  ms: it cannot expire yet
--   gone
local now = nowMs()
local state, expiresAtMs, generation, decidedBy = unpack(redis.call('HMGET', KEYS[1], 'state', 'expiresAtMs', 'generation', 'decidedBy'))
if not state then return {'gone', now} end
if decidedBy == ARGV[14] then return {'decided', now} end
if state ~= 'pending' then return {'already', now, state} end
local call = redis.call('HMGET', KEYS[3], 'state', 'phase', 'generation', 'inboxes', 'paramsAt', 'notBeforeMs', 'callback')
local waits = call[1] == 'inflight' and call[2] == 'awaiting-approval' and call[3] == generation
local to = ARGV[2]
if not waits then
  to = 'cancelled'
elseif to == 'expired' and tonumber(expiresAtMs) > now then
  return {'early', now, tonumber(expiresAtMs) - now}
elseif to ~= 'expired' and tonumber(expiresAtMs) <= now then
  return {'late', now}
end

redis.call('HSET', KEYS[1], 'state', to, 'decidedAtMs', now)
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('ZREM', KEYS[2], ARGV[1])
if to == 'cancelled' then return {'already', now, to} end
redis.call('HSET', KEYS[1], 'decidedBy', ARGV[14])
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'decision', ARGV[3], 'decisionSignature', ARGV[4]) end

-- Removes the job that waited for the decision. If a worker holds it, the worker finds it stale.
if redis.call('ZREM', KEYS[6], ARGV[13]) == 1 then redis.call('DEL', KEYS[5]) end
if ARGV[7] == '' then
  local startAt = call[6] and tonumber(call[6]) > now and tonumber(call[6]) or nil
  redis.call('HSET', KEYS[3], 'phase', startAt and 'delayed' or 'queued', 'generation', ARGV[11], 'signature', ARGV[12], 'updatedAtMs', now)
  nextVersion(KEYS[3])
  if startAt then
    enqueue_delayed({ARGV[17]}, {ARGV[18], ARGV[19], ARGV[20], ARGV[21], ARGV[22], startAt})
  else
    enqueue({ARGV[17]}, {unpack(ARGV, 18)})
  end
else
  local expiresAt = text(now + ARGV[9])
  local ended = to == 'approved' and 'done' or 'failed'
  redis.call('HSET', KEYS[3], 'state', ended, 'outcome', ARGV[7], 'outcomeSignature', ARGV[8], 'retriable', '0', 'updatedAtMs', now)
  if ARGV[15] ~= '' then redis.call('HSET', KEYS[3], 'freeAtMs', text(now + ARGV[15])) end
  redis.call('HDEL', KEYS[3], 'phase', 'inboxes')
  nextVersion(KEYS[3])
  redis.call('PEXPIREAT', KEYS[3], expiresAt)
  if call[5] then redis.call('PEXPIREAT', call[5], expiresAt) end
  redis.call('ZREM', KEYS[4], ARGV[5])
  if isUnresolved(ended, ARGV[7]) then redis.call('ZADD', KEYS[7], expiresAt, ARGV[5]) end
  -- A denied call is no dead letter: it failed as intended.
  if to == 'expired' and ARGV[16] ~= '' then add_dead_letter({KEYS[8]}, {ARGV[5], text(now), ARGV[16]}) end
  if call[7] then add_callback({string.sub(KEYS[3], 1, -1 - #RECORDS - #ARGV[5])}, {ARGV[5], ended, ARGV[7], ARGV[8], false}) end
  notify(call[4], ARGV[10], settledEvent(ARGV[5], ended, ARGV[8], ARGV[7], now))
end
return {'decided', now}
