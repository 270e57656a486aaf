-- Starts the attempts of jobs that have just been taken, in the step that took them.
--
-- KEYS  1, 2 bases of keys: of the partition, and of what a tier's partitions share
-- ARGV  1 BullMQ's answers: {{{the job's fields}, its ID, …}, …}  2 worker ID  3 lease, ms  4 token of the attempts: each one's
--       number is added to it
-- Returns {BullMQ's answer, what begin returns, …}: {'apart'} for a job whose attempt is to be started by itself, false where
-- there is no job
local answers, records, circuitsKey, inboxes = {}, KEYS[1] .. RECORDS, KEYS[2] .. CIRCUITS, KEYS[1] .. INBOXES
local lostWorkers = KEYS[1] .. LOST_WORKERS
for number, job in ipairs(ARGV[1]) do
  local begun = false
  if type(job) == 'table' and type(job[1]) == 'table' then
    local callId, generation = string.match(job[2], '^(.+)%.(%d+)$')
    begun = not callId and {'apart'}
      or begin_attempt({records .. callId, circuitsKey},
        {generation, ARGV[2], ARGV[3], '', ARGV[4] .. '.' .. number, '0', inboxes, callId, '1', lostWorkers, '0'})
  end
  answers[2 * number - 1], answers[2 * number] = job, begun
end
return answers
