-- Forgets a call that has ended. One in flight stays, and so does one in doubt: if it were forgotten, it could run again. A cancelled call
-- in doubt is forgotten when the caller names it.
--
-- KEYS  1 record  2 index of all calls  3 index of the session's calls  4 index of calls in doubt
--       5 base of the partition's keys
-- ARGV  1 call ID  2 time to live of the fence, ms: until then, late attempts of the forgotten call are refused
--       3 key prefix of the counts of calls by tool  4 retention, ms  5 tool  6 '1' for a call that the caller named
-- Returns {code}: flushed · inflight · unresolved · gone · moved (its record has just left for a segment; nothing was written)
local fields = redis.call('HMGET', KEYS[1], 'state', 'outcome', 'fence', 'createdAtMs', 'outcomeAt', 'paramsAt', 'ended', 'segment')
if not fields[1] then
  if segment_of({KEYS[5]}, {ARGV[1]}) then return {'moved'} end
  redis.call('LREM', KEYS[2], -1, ARGV[1])
  redis.call('LREM', KEYS[3], -1, ARGV[1])
  remove_dead_letter({KEYS[5]}, {ARGV[1]})
  return {'gone'}
end
if fields[7] then
  local ended = endedFields(fields[7])
  fields[3], fields[4] = ended.fence, ended.createdAtMs
end
if fields[1] == 'inflight' then return {'inflight'} end
local named = fields[1] == 'cancelled' and ARGV[6] == '1'
if isUnresolved(fields[1], fields[2]) and not named then return {'unresolved'} end
-- The record is a copy of one that was moved.
if fields[8] then forget_moved({KEYS[5]}, {fields[8], ARGV[1]}) end
redis.call('UNLINK', KEYS[1], fields[5] or KEYS[1], fields[6] or KEYS[1])
local size = ARGV[3] .. string.format('%.0f', math.floor(fields[4] * 24 / ARGV[4]))
if redis.call('EXISTS', size) == 1 then redis.call('HINCRBY', size, ARGV[5], -1) end
if fields[3] then
  redis.call('HSET', KEYS[1], 'fence', fields[3])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('LREM', KEYS[2], -1, ARGV[1])
redis.call('LREM', KEYS[3], -1, ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
remove_dead_letter({KEYS[5]}, {ARGV[1]})
return {'flushed'}
