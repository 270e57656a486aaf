-- Takes the next waiting jobs: what BullMQ's moveToActive does for an ordinary job of an ordinary queue, and no more. Returns nil
-- for everything else (paused or limited queues, due jobs, an empty queue), which is left to BullMQ. What comes back (a retry, a
-- call that was woken) goes before the jobs in line, every other time: neither holds up the other.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 lock token of all of them  2 lock, ms  3 how many at most  4 workers that take from this queue: of several jobs each
--       takes a fair share  5 worker ID  6 '1' when nobody asks BullMQ after nil
-- Returns {{{field, value, …}, job ID, 0, 0}, …} as BullMQ does; behind the last one's 0, 0 stands 1 when there is no need to ask
-- again: the queue has nothing more, now or later, or several were taken and a marker stands for the rest. Empty when all that waits is
-- left to other workers. Behind them, whether more can be taken now.
local queue, now, most = KEYS[1], nowMs(), tonumber(ARGV[3])
local isDue = (now + 1) * 0x1000 - 1
local due = #redis.call('ZRANGEBYSCORE', queue .. 'delayed', 0, isDue, 'LIMIT', 0, 1) > 0
if due then due = start_due({queue}, {isDue}) end
local settings = redis.call('HMGET', queue .. 'meta', 'paused', 'concurrency', 'max')
if settings[1] or settings[2] or settings[3] then return nil end
local back, left = redis.call('LLEN', queue .. 'wait'), linesLeftBy(queue, ARGV[5])
local inAllLines, inLine = standing(queue, left)
local lineFirst = inLine > 0 and (due or back > 0) and redis.call('HINCRBY', queue .. 'lines', 'served', 1) % 2 == 0
if due and not lineFirst then
  -- The turn of what is due has not been taken: it is that of whoever asks next.
  if ARGV[6] == '1' and inLine > 0 then redis.call('HINCRBY', queue .. 'lines', 'served', -1) end
  return nil
end
if back + inAllLines == 0 then return nil end
if most > 1 then most = math.min(most, math.max(1, math.ceil((back + inLine) / ARGV[4]))) end
local jobIds = lineFirst and next_fair({queue}, {most, left}) or {}
if #jobIds < most and back > 0 then
  -- The last is the oldest.
  local returned = redis.call('LRANGE', queue .. 'wait', #jobIds - most, -1)
  redis.call('LTRIM', queue .. 'wait', 0, -#returned - 1)
  for position = #returned, 1, -1 do jobIds[#jobIds + 1] = returned[position] end
end
if #jobIds < most and inLine > 0 and not lineFirst then
  for _, jobId in ipairs(next_fair({queue}, {most - #jobIds, left})) do jobIds[#jobIds + 1] = jobId end
end
local jobs = {}
for number, jobId in ipairs(jobIds) do
  local job = queue .. jobId
  local fields = redis.call('HMGET', job, 'name', 'data', 'opts', 'timestamp', 'ats')
  redis.call('SET', job .. ':lock', ARGV[1], 'PX', ARGV[2])
  redis.call('HSET', job, 'processedOn', text(now), 'ats', text((fields[5] or 0) + 1))
  emit(queue, 'event', 'active', 'jobId', jobId, 'prev', 'waiting')
  deferWrite('LPUSH', queue .. 'active', jobId)
  jobs[number] = {
    {'name', fields[1] or '', 'data', fields[2] or '{}', 'opts', fields[3] or '{}', 'timestamp', fields[4] or now, 'processedOn', now},
    jobId, 0, 0, 0}
end
local more = due or #jobs < back + inAllLines
-- Sets the marker for the remaining jobs.
if more then redis.call('ZADD', queue .. 'marker', '0', '0') end
local enough = more and #jobs > 1 or not more and not isDelayedSoon(queue)
if enough and #jobs > 0 then jobs[#jobs][5] = 1 end
return jobs, more
