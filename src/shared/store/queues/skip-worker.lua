-- Leaves a job to other workers of its queue: this worker does not support its call's need, or must not run it now. An idle compatible
-- worker gets the job at once. Else it goes to a line that incompatible workers skip, as do the next calls with this need. The list of
-- incompatible workers expires, because workers are updated and end.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 job ID  2 lock token  3 need of the call  4 worker ID  5 time to live of the list, ms  6 session of the call
--       7.. IDs of the workers that should get the job
-- Returns 0 when none of them is compatible: nothing was written. Returns 1 when the job was moved, or its lock is lost.
local queue, jobId, need, worker = KEYS[1], ARGV[1], ARGV[3], ARGV[4]
local job, lackers = queue .. jobId, queue .. 'lackers'
if redis.call('GET', job .. ':lock') ~= ARGV[2] then return 1 end
local isCompatible = false
for index = 7, #ARGV do isCompatible = isCompatible or not isIncompatible(queue, ARGV[index], need) end
if not isCompatible then return 0 end
if not isIncompatible(queue, worker, need) then
  local workers = (incompatibleWorkers(queue)[need] or ' ') .. worker .. ' '
  redis.call('HSET', lackers, need, workers)
  incompatibleWorkers(queue)[need] = workers
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
