-- Decides an approval, once. An approved call is enqueued, or delayed until its start; any other decision ends the call. The call of a plan,
-- which no worker runs, always ends.
--
-- KEYS  1 base of the partition's keys  2 key prefix of the queue
-- ARGV  1 approval ID  2 decision: approved, denied or expired  3 decision (JSON), '' for none  4 its signature
--       5 time to live of the approval, ms  6 ID of the job that waits
--       7 token: a script that runs twice, because its first answer was lost, answers the same
--       8 call ID  9 '' for a call that runs now, else its state: done or failed
--       for a call that runs now: 10 new generation  11 signature of the request under it  12.. the job, the arguments of enqueue
--       for one that ends: 10.. outcome and further arguments of end_call
-- Returns {code, now, …}:
--   decided
--   already    state: it was decided before, or the call ended
--   late       its time is over: let it expire    early  ms: it cannot expire yet
--   gone
local base, now = KEYS[1], nowMs()
local approval, record = base .. APPROVALS .. ':' .. ARGV[1], base .. RECORDS .. ARGV[8]
local state, expiresAtMs, generation, decidedBy = unpack(redis.call('HMGET', approval, 'state', 'expiresAtMs', 'generation', 'decidedBy'))
if not state then return {'gone', now} end
if decidedBy == ARGV[7] then return {'decided', now} end
if state ~= 'pending' then return {'already', now, state} end
local call = redis.call('HMGET', record, 'state', 'phase', 'generation', 'notBeforeMs')
local waits = call[1] == 'inflight' and call[2] == 'awaiting-approval' and call[3] == generation
local to = ARGV[2]
if not waits then
  to = 'cancelled'
elseif to == 'expired' and tonumber(expiresAtMs) > now then
  return {'early', now, tonumber(expiresAtMs) - now}
elseif to ~= 'expired' and tonumber(expiresAtMs) <= now then
  return {'late', now}
end

redis.call('HSET', approval, 'state', to, 'decidedAtMs', now)
redis.call('PEXPIRE', approval, ARGV[5])
redis.call('ZREM', base .. APPROVALS .. 's:pending', ARGV[1])
if to == 'cancelled' then return {'already', now, to} end
redis.call('HSET', approval, 'decidedBy', ARGV[7])
if ARGV[3] ~= '' then redis.call('HSET', approval, 'decision', ARGV[3], 'decisionSignature', ARGV[4]) end

-- Removes the job that waited for the decision. If a worker holds it, the worker finds it stale.
if redis.call('ZREM', KEYS[2] .. 'delayed', ARGV[6]) == 1 then redis.call('DEL', KEYS[2] .. ARGV[6]) end
if ARGV[9] ~= '' then
  end_call({base}, {unpack(ARGV, 8)})
  return {'decided', now}
end
local startAt = call[4] and tonumber(call[4]) > now and tonumber(call[4]) or nil
redis.call('HSET', record, 'phase', startAt and 'delayed' or 'queued', 'generation', ARGV[10], 'signature', ARGV[11], 'updatedAtMs', now)
nextVersion(record)
if startAt then
  enqueue_delayed({KEYS[2]}, {ARGV[12], ARGV[13], ARGV[14], ARGV[15], ARGV[16], startAt})
else
  enqueue({KEYS[2]}, {unpack(ARGV, 12)})
end
return {'decided', now}
