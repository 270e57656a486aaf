-- Starts the attempts of fetched jobs, in the script that fetched them.
--
-- KEYS  1, 2 bases of keys: of the partition, and of its home partition
-- ARGV  1 BullMQ's answers: {{{the job's fields}, its ID, …}, …}  2 worker ID  3 lease, ms  4 prefix of the attempts' tokens: the number of
--       each is appended
-- Returns {BullMQ's answer, the answer of begin_attempt, …}: {'apart'} for a job whose attempt the worker must start itself, false when
-- there is no job
local answers, records, circuitsKey, inboxes = {}, KEYS[1] .. RECORDS, KEYS[2] .. CIRCUITS, KEYS[1] .. INBOXES
local lostWorkers = KEYS[1] .. LOST_WORKERS
for number, job in ipairs(ARGV[1]) do
  local attempt = false
  if type(job) == 'table' and type(job[1]) == 'table' then
    local callId, generation = string.match(job[2], '^(.+)%.(%d+)$')
    -- A record that cannot be read must not fail the jobs that were fetched with it.
    local isBegun, answer = false
    if callId then
      isBegun, answer = pcall(begin_attempt, {records .. callId, circuitsKey},
        {generation, ARGV[2], ARGV[3], '', ARGV[4] .. '.' .. number, '0', inboxes, callId, '1', lostWorkers, '0'})
    end
    attempt = isBegun and answer or {'apart'}
  end
  answers[2 * number - 1], answers[2 * number] = job, attempt
end
return answers
