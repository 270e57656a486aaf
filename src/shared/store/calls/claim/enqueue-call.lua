-- Puts the job of a new call into the queue, or sends it to the worker that write_call found.
--
-- KEYS  the table of claim-batch.lua
-- ARGV  the table of claim.lua
local partition, claim = KEYS, ARGV
local terms, generation, startAt, queue = claim.terms, claim.generation, claim.startAt, {partition.queue}
local jobId = claim.callId .. '.' .. generation
if startAt and not claim.approval then
  local isFar = startAt - claim.now > tonumber(partition.retentionMs) / 2
  enqueue_delayed(queue, {jobId, terms.job, generation, claim.jobData, claim.kept, startAt, terms.line, terms.session,
    isFar and partition.calls .. '\n' .. claim.sessionCalls or nil})
elseif claim.worker then
  local attempt = claim.attempt or {'', '', '', '', ''}
  push(queue, {claim.worker, jobId, terms.job, claim.jobData, claim.kept, generation, claim.token, unpack(attempt)})
else
  enqueue(queue, {jobId, terms.job, generation, claim.jobData, claim.kept, terms.line, terms.session, terms.need})
end
