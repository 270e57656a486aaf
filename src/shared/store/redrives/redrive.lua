-- Redrives a dead letter: begins another round of a call that failed and is not in doubt, and puts it into its queue. With an approval,
-- people are asked first.
--
-- KEYS  1 record  2 in-flight index  3 index of calls in doubt  4 base of the partition's keys
-- ARGV  1 call ID  2 generation as it was seen  3 new generation  4 the request as it was signed  5 its signature under the new generation
--       6 resolution: what makes this life of the call another one  7 redrive ID  8 what the record keeps of it (JSON)
--       9 number of calls in flight at which the tier takes no more like it  10 key prefix of approvals
--       11 approval (JSON), '' for none  12 its signature  13 its ID  14 when it expires  15 how long it is kept after that, ms
--       16 key prefix of the queue  17.. the job, as enqueue takes it
-- Returns {code, now, …}: queued · again (this very redrive has queued it before) · overloaded in flight
--   changed state (the call is not as it was seen) · none (it is no dead letter) · unresolved · gone
local MAX_LINES = 20
local now = nowMs()
local state, outcome, request, generation, redriven = unpack(redis.call('HMGET', KEYS[1], 'state', 'outcome', 'request', 'generation', 'redriven'))
if not state then return {'gone', now} end
redriven = redriven or ''
-- Under the same generation, the script was sent again because its first answer was lost.
if string.find(redriven, '"id":"' .. ARGV[7] .. '"', 1, true) then return {generation == ARGV[3] and 'queued' or 'again', now} end
if generation ~= ARGV[2] or state ~= 'failed' or request ~= ARGV[4] then return {'changed', now, state} end
if isUnresolved(state, outcome) then return {'unresolved', now} end
if not redis.call('ZSCORE', KEYS[4] .. DEAD_LETTERS, ARGV[1]) then return {'none', now} end
local inflight = redis.call('ZCARD', KEYS[2])
if inflight >= tonumber(ARGV[9]) then return {'overloaded', now, inflight} end

-- The attempts until now are those of an earlier round: the next one has as many as any call.
local attempts, round = unpack(redis.call('HMGET', KEYS[1], 'attempts', 'round'))
round = tonumber(round or 1)
local earlier = string.gsub(attempts or '', '([^\n]*)}\n', function(line)
  if not string.find(line, ',"round":%d+$') then return line .. ',"round":' .. text(round) .. '}\n' end
end)
local _, lines = string.gsub(redriven, '\n', '\n')
if lines >= MAX_LINES then redriven = string.gsub(redriven, '^[^\n]*\n', '') end
-- The first write is one that Redis refuses when its memory is full: after any other, all of them would pass.
redis.call('HSET', KEYS[1], 'generation', ARGV[3], 'signature', ARGV[5], 'resolution', ARGV[6], 'updatedAtMs', now, 'redriven', redriven .. ARGV[8] .. '\n',
  'round', text(round + 1))
if attempts then redis.call('HSET', KEYS[1], 'attempts', earlier) end
nextVersion(KEYS[1])
reopen_call(KEYS, {ARGV[1], ARGV[3], unpack(ARGV, 10, 15)})
enqueue({ARGV[16]}, {unpack(ARGV, 17)})
return {'queued', now}
