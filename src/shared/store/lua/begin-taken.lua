-- Starts the attempts of jobs that have just been taken, in the step that took them.
--
-- KEYS  1 key prefix of records  2 circuits
-- ARGV  1 BullMQ's answers: {{{the job's fields}, its ID, …}, …}  2 worker ID  3 lease, ms  4 token of the attempts: each one's
--       number is added to it  5 key prefix of inboxes
-- Returns {BullMQ's answer, what begin returns, …}: {'apart'} for a job whose attempt is to be started by itself, false where
-- there is no job
local answers = {}
for number, job in ipairs(ARGV[1]) do
  local begun = false
  if type(job) == 'table' and type(job[1]) == 'table' then
    local callId, generation = string.match(job[2], '^(.+)%.(%d+)$')
    begun = not callId and {'apart'}
      or begin({KEYS[1] .. callId, KEYS[2]}, {generation, ARGV[2], ARGV[3], '', ARGV[4] .. '.' .. number, '0', ARGV[5], callId, '1'})
  end
  answers[2 * number - 1], answers[2 * number] = job, begun
end
return answers
