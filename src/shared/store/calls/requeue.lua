-- Enqueues a call again under a new generation: one that an operator resolved as 'retry', or one whose job is missing. With an approval,
-- it waits for a person's decision first.
--
-- KEYS  1 base of the partition's keys  2 key prefix of the queue
-- ARGV  1 call ID  2 new generation  3 '1' for a call that ended in doubt, '0' for one whose job is missing
--       4 inbox ID, '' when none waits  5 the signed request  6 its signature under the new generation
--       7 resolution: the chain of generations of a call that was resolved as 'retry'  8 generation that the caller read
--       9 to 13 the job, the arguments of enqueue  14.. the approval, the arguments of await_approval; absent without one
-- Returns {code, now, …}: queued · refused state · gone
local record, now = KEYS[1] .. RECORDS .. ARGV[1], nowMs()
local fields = redis.call('HMGET', record, 'state', 'outcome', 'inboxes', 'request', 'generation')
if not fields[1] then return {'gone', now} end
-- The script was sent again because its first answer was lost.
if ARGV[3] == '1' and fields[5] == ARGV[2] then return {'queued', now} end
-- Another process was faster: the call already has another job, which may run.
if fields[5] ~= ARGV[8] then return {'refused', now, fields[1]} end
if fields[4] ~= ARGV[5] then return {'refused', now, fields[1]} end
local job = KEYS[2] .. ARGV[1] .. '.' .. ARGV[8]
if ARGV[3] == '1' then
  if not isUnresolved(fields[1], fields[2]) then return {'refused', now, fields[1]} end
  reopen_call({KEYS[1]}, {ARGV[1], ARGV[2], unpack(ARGV, 14)})
elseif fields[1] ~= 'inflight' or (redis.call('EXISTS', job) == 1 and redis.call('HEXISTS', job, 'finishedOn') == 0) then
  return {'refused', now, fields[1]}
end
redis.call('HSET', record, 'generation', ARGV[2], 'signature', ARGV[6], 'resolution', ARGV[7], 'updatedAtMs', now, 'inboxes', withInbox(fields[3], ARGV[4]))
nextVersion(record)
enqueue({KEYS[2]}, {unpack(ARGV, 9, 13)})
return {'queued', now}
