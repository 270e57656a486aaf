-- Counts the calls of a partition by state.
--
-- KEYS  1 in-flight index  2 active jobs  3 delayed jobs  4 pending approvals  5 index of calls in doubt
--       6 index of pending calls
-- ARGV  1 key prefix of records  2 how many of the oldest calls in flight are read
-- Returns {in flight, active, delayed, pending approvals, in doubt, oldest wait in ms, stale, in flight and to start later,
-- those of them that wait for an approval, pending}
local now = nowMs()
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
local oldestWaitMs, stale = 0, 0
for _, callId in ipairs(redis.call('ZRANGE', KEYS[1], 0, ARGV[2] - 1)) do
  local fields = redis.call('HMGET', ARGV[1] .. callId, 'phase', 'lockUntilMs', 'updatedAtMs', 'createdAtMs', 'notBeforeMs')
  if fields[1] == 'queued' or fields[1] == 'delayed' then
    -- A parked call waits for no worker, and a delayed one not before its start.
    oldestWaitMs = math.max(oldestWaitMs, now - math.max(fields[3] or fields[4] or now, fields[5] or 0))
  elseif fields[1] == 'waiting-retry' then
    oldestWaitMs = math.max(oldestWaitMs, now - (fields[5] or now))
  elseif fields[1] == 'running' and fields[2] and tonumber(fields[2]) < now then
    stale = stale + 1
  end
end
local starting, unapproved = redis.call('ZCOUNT', KEYS[1], '(' .. text(now), '+inf'), 0
for _, approval in ipairs(starting > 0 and redis.call('ZRANGE', KEYS[4], 0, ARGV[2] - 1) or {}) do
  local startAt = redis.call('ZSCORE', KEYS[1], string.match(approval, '^(.*)%.'))
  if startAt and tonumber(startAt) > now then unapproved = unapproved + 1 end
end
return {
  redis.call('ZCARD', KEYS[1]), redis.call('LLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]), redis.call('ZCARD', KEYS[4]),
  redis.call('ZCARD', KEYS[5]), oldestWaitMs, stale, starting, unapproved, redis.call('ZCARD', KEYS[6])}
