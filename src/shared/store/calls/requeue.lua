-- Enqueues a call again under a new generation: one that an operator resolved as 'retry', or one whose job is missing. With an approval,
-- it waits for a person's decision first.
--
-- KEYS  1 record  2 in-flight index  3 the record's present job  4 index of calls in doubt  5 base of the partition's keys
-- ARGV  1 call ID  2 new generation  3 '1' for a call that ended in doubt, '0' for one whose job is missing
--       4 inbox ID, '' when none waits  5 the signed request  6 its signature under the new generation
--       7 resolution: the chain of generations of a call that was resolved as 'retry'  8 generation that the caller read
--       9 key prefix of approvals  10 approval (JSON), '' for none  11 its signature  12 its ID  13 its expiry  14 its time to live after
--       that, ms  15 key prefix of the queue  16.. the job, the arguments of enqueue
-- Returns {code, now, …}: queued · refused state · gone
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'outcome', 'inboxes', 'request', 'generation')
if not fields[1] then return {'gone', now} end
-- The script was sent again because its first answer was lost.
if ARGV[3] == '1' and fields[5] == ARGV[2] then return {'queued', now} end
-- Another process was faster: the call already has another job, which may run.
if fields[5] ~= ARGV[8] then return {'refused', now, fields[1]} end
if fields[4] ~= ARGV[5] then return {'refused', now, fields[1]} end
if ARGV[3] == '1' then
  if not isUnresolved(fields[1], fields[2]) then return {'refused', now, fields[1]} end
  reopen_call({KEYS[1], KEYS[2], KEYS[4], KEYS[5]}, {ARGV[1], ARGV[2], unpack(ARGV, 9, 14)})
elseif fields[1] ~= 'inflight' or (redis.call('EXISTS', KEYS[3]) == 1 and redis.call('HEXISTS', KEYS[3], 'finishedOn') == 0) then
  return {'refused', now, fields[1]}
end
redis.call('HSET', KEYS[1], 'generation', ARGV[2], 'signature', ARGV[6], 'resolution', ARGV[7], 'updatedAtMs', now, 'inboxes', withInbox(fields[3], ARGV[4]))
nextVersion(KEYS[1])
enqueue({ARGV[15]}, {unpack(ARGV, 16)})
return {'queued', now}
