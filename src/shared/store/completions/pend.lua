-- Ends an attempt whose call now waits for an outside system. No worker, attempt or slot holds the call: its job is delayed until the call
-- expires. Running again, because the first answer was lost, changes nothing.
--
-- KEYS  1, 2 bases of keys: of the partition, and of what a tier's partitions share  3 key prefix of the queue
--       4 entry of the token  5 its terms  6 kept progress of the call
-- ARGV  1 to 6 as issue_token takes them  7 attempts  8 time until the call expires, ms  9 rule of the expiry
--       10 success for the circuit's window (JSON, `CircuitSample`), '' for none
--       11 session  12 how long the index of its pending calls is kept after their expiry, ms
-- Returns {code, now, …}:
--   pending    when the call expires
--   cancelled  cancellation is asked for: settle instead
--   ended (it was completed before the attempt ended, or has ended otherwise) · fenced
local callId, record, now = ARGV[1], KEYS[1] .. RECORDS .. ARGV[1], nowMs()
local issued = issue_token({record, KEYS[4], KEYS[5]}, ARGV)[1]
if issued ~= 'issued' then return {issued, now} end
local fields = redis.call('HMGET', record, 'phase', 'pendingUntilMs', 'cancelRequested', 'generation', 'inboxes')
if fields[1] == 'pending' then return {'pending', now, fields[2]} end
if fields[3] == '1' then return {'cancelled', now} end

-- The outside system may have asked for more time before the attempt ended.
local untilMs = text(now + ARGV[8] + (redis.call('HGET', KEYS[4], 'extendMs') or 0))
-- The pending has its own number among the progress reports, so that followers see them in order.
local number = redis.call('HINCRBY', record, 'told', 1)
if number == 1 then redis.call('DEL', KEYS[6]) end
redis.call('HSET', record, 'phase', 'pending', 'attempts', ARGV[7], 'pendingUntilMs', untilMs, 'pendingNumber', text(number), 'onExpiry', ARGV[9],
  'updatedAtMs', text(now))
notify(fields[5], KEYS[1] .. INBOXES, {'{"type":"pending","callId":"', callId, '","expiresAtMs":', untilMs, '}'})
redis.call('HDEL', record, 'lockUntilMs', 'worker', 'token', 'notBeforeMs')
redis.call('ZREM', KEYS[1] .. INFLIGHT, callId)
redis.call('ZADD', KEYS[1] .. PENDING, untilMs, callId)
-- Closing the session finds the call by this, however old it is by then.
local sessionCalls = KEYS[1] .. PENDING .. ':' .. ARGV[11]
redis.call('HSET', KEYS[4], 'session', ARGV[11])
redis.call('SADD', sessionCalls, callId)
deferExpire(sessionCalls, untilMs - now + ARGV[12])
if ARGV[10] ~= '' then
  local sample = cjson.decode(ARGV[10])
  addSample(KEYS[2] .. CIRCUITS, KEYS[2] .. WINDOWS .. sample.circuit, sample, '1', now)
end

-- Delays the job as BullMQ's moveToDelayed does. If another worker already holds the job, that worker delays it.
local queue, jobId = KEYS[3], callId .. '.' .. fields[4]
if redis.call('LREM', queue .. 'active', -1, jobId) == 1 then
  redis.call('DEL', queue .. jobId .. ':lock')
  redis.call('SREM', queue .. 'stalled', jobId)
  redis.call('HSET', queue .. jobId, 'delay', text(untilMs - now))
  redis.call('ZADD', queue .. 'delayed', text(untilMs * 0x1000), jobId)
  emit(queue, 'event', 'delayed', 'jobId', jobId, 'delay', untilMs)
  -- The marker tells a worker when to fetch again, unless another job is due sooner.
  if redis.call('ZRANGE', queue .. 'delayed', 0, 0)[1] == jobId then redis.call('ZADD', queue .. 'marker', untilMs, '1') end
end
return {'pending', now, untilMs}
