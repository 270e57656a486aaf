-- Redrives a dead letter: begins another round of a call that failed and is not in doubt, and puts it into its queue. With an approval,
-- people are asked first.
--
-- KEYS  1 base of the partition's keys  2 key prefix of the queue
-- ARGV  1 call ID  2 generation as it was seen  3 new generation  4 the request as it was signed  5 its signature under the new generation
--       6 resolution: what makes this life of the call another one  7 redrive ID  8 what the record keeps of it (JSON)
--       9 number of calls in flight at which the tier takes no more like it  10 to 17 the job, the arguments of enqueue
--       18.. the approval, the arguments of await_approval; absent without one
-- Returns {code, now, …}: queued · again (this very redrive has queued it before) · overloaded in flight
--   changed state (the call is not as it was seen) · none (it is no dead letter) · unresolved · gone
local MAX_LINES = 20
local record, now = KEYS[1] .. RECORDS .. ARGV[1], nowMs()
local state, outcome, request, generation, redriven = unpack(redis.call('HMGET', record, 'state', 'outcome', 'request', 'generation', 'redriven'))
if not state then return {'gone', now} end
redriven = redriven or ''
-- Under the same generation, the script was sent again because its first answer was lost.
if string.find(redriven, '"id":"' .. ARGV[7] .. '"', 1, true) then return {generation == ARGV[3] and 'queued' or 'again', now} end
if generation ~= ARGV[2] or state ~= 'failed' or request ~= ARGV[4] then return {'changed', now, state} end
if isUnresolved(state, outcome) then return {'unresolved', now} end
if not redis.call('ZSCORE', KEYS[1] .. DEAD_LETTERS, ARGV[1]) then return {'none', now} end
local inflight = redis.call('ZCARD', KEYS[1] .. INFLIGHT)
if inflight >= tonumber(ARGV[9]) then return {'overloaded', now, inflight} end

-- The attempts until now are those of an earlier round: the next one has as many as any call.
local attempts, round = unpack(redis.call('HMGET', record, 'attempts', 'round'))
round = tonumber(round or 1)
local earlier = string.gsub(attempts or '', '([^\n]*)}\n', function(line)
  if not string.find(line, ',"round":%d+$') then return line .. ',"round":' .. text(round) .. '}\n' end
end)
local _, lines = string.gsub(redriven, '\n', '\n')
if lines >= MAX_LINES then redriven = string.gsub(redriven, '^[^\n]*\n', '') end
-- The first write is one that Redis refuses when its memory is full: after any other, all of them would pass.
redis.call('HSET', record, 'generation', ARGV[3], 'signature', ARGV[5], 'resolution', ARGV[6], 'updatedAtMs', now, 'redriven', redriven .. ARGV[8] .. '\n',
  'round', text(round + 1))
if attempts then redis.call('HSET', record, 'attempts', earlier) end
nextVersion(record)
reopen_call({KEYS[1]}, {ARGV[1], ARGV[3], unpack(ARGV, 18)})
enqueue({KEYS[2]}, {unpack(ARGV, 10, 17)})
return {'queued', now}
