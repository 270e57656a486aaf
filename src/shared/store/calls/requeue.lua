-- Puts a call back into the queue under a new generation: one that an operator resolved as 'retry', or one whose job is gone. With an
-- approval, people are asked first.
--
-- KEYS  1 record  2 in-flight index  3 the record's present job  4 index of calls in doubt
-- ARGV  1 call ID  2 new generation  3 '1' for a call that ended in doubt, '0' for one whose job is missing
--       4 inbox ID, '' when none waits  5 the request as it was signed  6 its signature under the new generation
--       7 resolution: what makes this life of the call another one  8 generation as it was seen  9 key prefix of approvals
--       10 approval (JSON), '' for none  11 its signature  12 its ID  13 when it expires  14 how long it is kept after that, ms
--       15 key prefix of the queue  16.. the job, as enqueue takes it
-- Returns {code, now, …}: queued · refused state · gone
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'outcome', 'inboxes', 'request', 'paramsAt', 'generation')
if not fields[1] then return {'gone', now} end
-- The first answer was lost on the way and the script came again.
if ARGV[3] == '1' and fields[6] == ARGV[2] then return {'queued', now} end
-- Another process was faster: the call has another job by now, which may run already.
if fields[6] ~= ARGV[8] then return {'refused', now, fields[1]} end
if fields[4] ~= ARGV[5] then return {'refused', now, fields[1]} end
if ARGV[3] == '1' then
  if not isUnresolved(fields[1], fields[2]) then return {'refused', now, fields[1]} end
  redis.call('HSET', KEYS[1], 'state', 'inflight', 'phase', 'queued', 'lost', 0, 'blamed', 0, 'lostAlone', 0)
  redis.call('HDEL', KEYS[1], 'outcome', 'outcomeSignature', 'retriable', 'expiresAtMs', 'firstStartedAtMs', 'startedAtMs', 'cancelRequested', 'endedBy', 'freeAtMs')
  redis.call('PERSIST', KEYS[1])
  if fields[5] then redis.call('PERSIST', fields[5]) end
  redis.call('ZADD', KEYS[2], now, ARGV[1])
  redis.call('ZREM', KEYS[4], ARGV[1])
elseif fields[1] ~= 'inflight' or (redis.call('EXISTS', KEYS[3]) == 1 and redis.call('HEXISTS', KEYS[3], 'finishedOn') == 0) then
  return {'refused', now, fields[1]}
end
redis.call('HSET', KEYS[1], 'generation', ARGV[2], 'signature', ARGV[6], 'resolution', ARGV[7], 'updatedAtMs', now, 'inboxes', withInbox(fields[3], ARGV[4]))
redis.call('HINCRBY', KEYS[1], 'version', 1)
if ARGV[10] ~= '' then
  local approval, expiresAt = ARGV[9] .. ':' .. ARGV[12], ARGV[13]
  redis.call('HSET', KEYS[1], 'phase', 'awaiting-approval', 'approval', ARGV[12])
  redis.call('HSET', approval, 'state', 'pending', 'request', ARGV[10], 'signature', ARGV[11], 'generation', ARGV[2], 'expiresAtMs', expiresAt)
  redis.call('PEXPIREAT', approval, expiresAt + ARGV[14])
  redis.call('ZADD', ARGV[9] .. 's', now, ARGV[12])
  redis.call('ZADD', ARGV[9] .. 's:pending', expiresAt, ARGV[12])
end
enqueue({ARGV[15]}, {unpack(ARGV, 16)})
return {'queued', now}
