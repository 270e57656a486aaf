-- Lets retries and parked calls wait for no longer than they were to wait, as they would where Redis' clock was set back since. A call that
-- was submitted for a later start keeps its time.
--
-- KEYS  1 key prefix of the queue  2 key prefix of records
-- Returns {how many jobs were changed}
local MAX_CHECKED, SLACK_MS = 10000, 1000
local queue, now, changed = KEYS[1], nowMs(), 0
local later = redis.call('ZRANGEBYSCORE', queue .. 'delayed', text((now + SLACK_MS) * 0x1000), '+inf', 'WITHSCORES', 'LIMIT', 0, MAX_CHECKED)
for index = 1, #later, 2 do
  local jobId, leftMs = later[index], later[index + 1] / 0x1000 - now
  local delay = tonumber(redis.call('HGET', queue .. jobId, 'delay'))
  if delay and leftMs > delay + SLACK_MS then
    local record = KEYS[2] .. string.match(jobId, '^(.*)%.')
    local phase = redis.call('HGET', record, 'phase')
    if phase == 'waiting-retry' or phase == 'queued' then
      local dueAt = now + math.ceil(delay)
      redis.call('HSET', record, 'notBeforeMs', text(dueAt))
      redis.call('ZADD', queue .. 'delayed', text(dueAt * 0x1000), jobId)
      changed = changed + 1
    end
  end
end
if changed > 0 then redis.call('ZADD', queue .. 'marker', '0', '0') end
return {changed}
