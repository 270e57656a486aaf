-- Puts delayed calls that are due into their fair queues, as if they were submitted now. BullMQ would serve them before all that wait.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 score in the delayed set up to which jobs are due
-- Returns whether other jobs are due, which BullMQ promotes.
local MAX_STARTED = 200
local queue, started = KEYS[1], {}
local due = redis.call('ZRANGEBYSCORE', queue .. 'delayed', 0, ARGV[1], 'LIMIT', 0, MAX_STARTED)
for _, jobId in ipairs(due) do
  local line, session, indexes = unpack(redis.call('HMGET', queue .. jobId, 'startLine', 'startSession', 'startIndexes'))
  if line then
    started[#started + 1] = jobId
    enqueue_fair({queue}, {jobId, line, session, '1'})
    redis.call('HSET', queue .. jobId, 'delay', '0')
    redis.call('HDEL', queue .. jobId, 'startLine', 'startSession', 'startIndexes')
    -- The indexes may have dropped the call since it was claimed.
    for index in string.gmatch(indexes or '', '[^\n]+') do redis.call('LPUSH', index, (string.match(jobId, '^(.*)%.'))) end
    emit(queue, 'event', 'waiting', 'jobId', jobId, 'prev', 'delayed')
    -- For skip-worker.lua.
    if line ~= PLAIN_LINE then redis.call('HSET', queue .. jobId, 'line', line) end
  end
end
if #started > 0 then
  redis.call('ZREM', queue .. 'delayed', unpack(started))
end
return #due > #started
