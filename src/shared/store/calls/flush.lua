-- Forgets a call that has ended. One in flight stays, and so does one in doubt: if it were forgotten, it could run again. A cancelled call
-- in doubt is forgotten when the caller names it.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 its session  3 its tool  4 time to live of the fence, ms: until then, late attempts of the forgotten call are refused
--       5 retention, ms  6 '1' for a call that the caller named
-- Returns {code}: flushed · inflight · unresolved · gone · moved (its record has just left for a segment; nothing was written)
local base, callId = KEYS[1], ARGV[1]
local record = base .. RECORDS .. callId
local function leaveIndexes()
  redis.call('LREM', base .. CALLS, -1, callId)
  redis.call('LREM', base .. SESSIONS .. ARGV[2], -1, callId)
  remove_dead_letter(KEYS, ARGV)
end

local fields = redis.call('HMGET', record, 'state', 'outcome', 'fence', 'createdAtMs', 'outcomeAt', 'paramsAt', 'ended', 'segment')
if not fields[1] then
  if segment_of(KEYS, ARGV) then return {'moved'} end
  leaveIndexes()
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
if fields[8] then forget_moved(KEYS, {fields[8], callId}) end
redis.call('UNLINK', record, fields[5] or record, fields[6] or record)
local size = base .. SIZES .. string.format('%.0f', math.floor(fields[4] * 24 / ARGV[5]))
if redis.call('EXISTS', size) == 1 then redis.call('HINCRBY', size, ARGV[3], -1) end
if fields[3] then
  redis.call('HSET', record, 'fence', fields[3])
  redis.call('PEXPIRE', record, ARGV[4])
end
leaveIndexes()
redis.call('ZREM', base .. IN_DOUBT, callId)
return {'flushed'}
