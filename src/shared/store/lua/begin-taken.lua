-- Starts the attempt of a job that has just been taken, in the step that took it.
--
-- KEYS  1 key prefix of records  2 circuits
-- ARGV  1 BullMQ's answer: {the job's fields, its ID, …}  2 worker ID  3 lease, ms  4 token of the attempt  5 key prefix of inboxes
-- Returns what begin returns; {'apart'} for a job whose attempt is to be started by itself; nil when there is no job
if type(ARGV[1]) ~= 'table' or type(ARGV[1][1]) ~= 'table' then return nil end
local callId, generation = string.match(ARGV[1][2], '^(.+)%.(%d+)$')
if not callId then return {'apart'} end
return begin({KEYS[1] .. callId, KEYS[2]}, {generation, ARGV[2], ARGV[3], '', ARGV[4], '0', ARGV[5], callId, '1'})
