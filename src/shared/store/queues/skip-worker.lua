-- Leaves a job to others of its queue: this worker lacks what its call needs, or should not run it now. The job stands in a line that
-- all those leave alone who lack the same, unless one that does not has nothing to do; and so do the next calls that need it. What is known
-- is forgotten from time to time: workers learn, and go.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 job ID  2 lock token  3 what the call needs  4 worker ID  5 how long that is known, ms  6 session of the call
--       7.. IDs of the workers that should have it
-- Returns 0 when all those lack it, too: nothing was written. A job that another attempt holds is left alone.
local queue, jobId, need, worker = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
local job, lackers = queue .. jobId, queue .. 'lackers'
if redis.call('GET', job .. ':lock') ~= ARGV[2] then return 1 end
local isWanted = false
for at = 7, #ARGV do isWanted = isWanted or not lacks(queue, ARGV[at], need) end
if not isWanted then return 0 end
if not lacks(queue, worker, need) then
  local known = (lackersOf(queue)[need] or ' ') .. worker .. ' '
  redis.call('HSET', lackers, need, known)
  lackersOf(queue)[need] = known
  if redis.call('PTTL', lackers) < 0 then redis.call('PEXPIRE', lackers, ARGV[5]) end
end
redis.call('DEL', job .. ':lock')
redis.call('SREM', queue .. 'stalled', jobId)
if redis.call('LREM', queue .. 'active', -1, jobId) == 0 then return 1 end
emit(queue, 'event', 'waiting', 'jobId', jobId, 'prev', 'active')
local other = idle_worker({queue}, {need})
if other then
  local name, data, options = unpack(redis.call('HMGET', job, 'name', 'data', 'opts'))
  redis.call('HSET', job, 'processedOn', text(nowMs()))
  dispatch_job({queue}, {other, jobId, name, data, options == job_options('1') and '1' or '0', other.id .. ' ' .. string.match(jobId, '[^.]*$'), '', '', '', '', ''})
  return 1
end
local line = redis.call('HGET', job, 'line') or PLAIN_LINE
enqueue_fair({queue}, {jobId, line .. '\n' .. need, ARGV[6]})
redis.call('ZADD', queue .. 'marker', '0', '0')
return 1
