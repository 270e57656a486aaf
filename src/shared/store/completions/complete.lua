-- An outside system completes a call, reports its progress or extends its time. A call is completed once: while it is pending, or while
-- the attempt that issued the token still runs.
--
-- KEYS  1, 2 bases of keys: of the partition, and of what a tier's partitions share  3 key prefix of the queue  4 entry of the token
--       5 kept progress of the call
-- ARGV  1 settle, progress or extend
--       2 token of this try: a script that runs twice, because its first answer was lost, answers the same
--       3 call ID  4 minimal time to live of the entry, ms
--       settle: 5 the job's end: completed or failed  6 its return value or reason  7 the attempt's end, as members of its JSON
--         8.. the arguments of settle, without attempts
--       progress: 5 event (JSON)
--       extend: 5 by how much, ms  6 the longest time from now, ms; the session's index is kept for the entry's time after it
-- Returns {code, now, …}:
--   settled · reported (progress) · extended, expiry of the call, '' while its attempt runs
--   unknown · used · expired · over: the call does not wait for this token · toolong
local callId, record, now = ARGV[3], KEYS[1] .. RECORDS .. ARGV[3], nowMs()
local entry = redis.call('HMGET', KEYS[4], 'call', 'fence', 'usedBy', 'signature', 'extendedBy')
if entry[1] ~= callId then return {'unknown', now} end
if entry[3] then return {entry[3] == ARGV[2] and 'settled' or 'used', now} end
local fields = redis.call('HMGET', record, 'state', 'phase', 'fence', 'pendingUntilMs', 'attempts', 'generation', 'inboxes', 'worker', 'startedAtMs')
local phase, untilMs = fields[2], tonumber(fields[4] or 0)
if fields[1] ~= 'inflight' or fields[3] ~= entry[2] or (phase ~= 'pending' and phase ~= 'running') then return {'over', now} end
if phase == 'pending' and untilMs <= now then return {'expired', now} end

local function keepEntry(ms)
  if redis.call('PTTL', KEYS[4]) < tonumber(ms) then redis.call('PEXPIRE', KEYS[4], ms) end
end

if ARGV[1] == 'progress' then
  local KEPT_REPORTS, KEPT_MS = 200, 900000
  local number = redis.call('HINCRBY', record, 'told', 1)
  if number == 1 then redis.call('DEL', KEYS[5]) end
  redis.call('XADD', KEYS[5], 'MAXLEN', KEPT_REPORTS, entry[2] .. '-' .. number, 'event', ARGV[5])
  redis.call('PEXPIRE', KEYS[5], KEPT_MS)
  notify(fields[7], KEYS[1] .. INBOXES, {ARGV[5]})
  return {'reported', now}
end

local queue, jobId = KEYS[3], callId .. '.' .. fields[6]
if ARGV[1] == 'extend' then
  if entry[5] == ARGV[2] then return {'extended', now, phase == 'running' and '' or text(untilMs)} end
  if phase == 'running' then
    local extendMs = ARGV[5] + (redis.call('HGET', KEYS[4], 'extendMs') or 0)
    if extendMs > tonumber(ARGV[6]) then return {'toolong', now} end
    redis.call('HSET', KEYS[4], 'extendMs', text(extendMs), 'extendedBy', ARGV[2])
    return {'extended', now, ''}
  end
  untilMs = untilMs + ARGV[5]
  if untilMs > now + ARGV[6] then return {'toolong', now} end
  redis.call('HSET', record, 'pendingUntilMs', text(untilMs))
  redis.call('HSET', KEYS[4], 'extendedBy', ARGV[2])
  redis.call('ZADD', KEYS[1] .. PENDING, text(untilMs), callId)
  deferExpire(KEYS[1] .. PENDING .. ':' .. redis.call('HGET', KEYS[4], 'session'), untilMs - now + ARGV[4])
  redis.call('ZADD', queue .. 'delayed', 'XX', text(untilMs * 0x1000), jobId)
  keepEntry(untilMs - now + ARGV[4])
  return {'extended', now, text(untilMs)}
end

local attempts = fields[5] or ''
if phase == 'running' then
  attempts = attempts .. '{"fence":' .. fields[3] .. ',"worker":' .. cjson.encode(fields[8] or '') .. ',"startedAtMs":' .. (fields[9] or now)
    .. ',"finishedAtMs":' .. text(now) .. ',"status":"pending","retriable":false}\n'
end
attempts = string.gsub(attempts, '"status":"pending"', function() return ARGV[7] .. ',"completedAtMs":' .. text(now) end)
local settled = end_pending(KEYS, {ARGV[8], ARGV[9], ARGV[10], ARGV[11], attempts, ARGV[12], ARGV[13]})
if settled[1] ~= 'settled' then return {'over', now} end
redis.call('HSET', KEYS[4], 'usedBy', ARGV[2])
local session = redis.call('HGET', KEYS[4], 'session')
if session then redis.call('SREM', KEYS[1] .. PENDING .. ':' .. session, callId) end
keepEntry(ARGV[4])
-- If a worker holds the job, the worker ends it.
if redis.call('ZREM', queue .. 'delayed', jobId) == 1 then
  redis.call('DEL', queue .. jobId, queue .. jobId .. ':logs')
  emit(queue, 'event', ARGV[5], 'jobId', jobId,
    ARGV[5] == 'completed' and 'returnvalue' or 'failedReason', ARGV[6], 'prev', 'delayed')
end
return {'settled', now}
