-- Ends and removes a job that has succeeded: what BullMQ's moveToFinished does for a job without parents and children. Returns false when
-- its lock is lost: nothing was written, and the caller leaves the job to BullMQ.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 job ID  2 lock token  3 token of its lock now  4 return value (JSON)
local queue, jobId = KEYS[1], ARGV[1]
local job = queue .. jobId
if ARGV[3] ~= ARGV[2] then return false end
if redis.call('LREM', queue .. 'active', -1, jobId) == 0 then return false end
deferWrite('SREM', queue .. 'stalled', jobId)
deferDelete(job)
deferDelete(job .. ':lock')
deferLogDelete(job .. ':logs')
emit(queue, 'event', 'completed', 'jobId', jobId, 'returnvalue', ARGV[4], 'prev', 'active')
return true
