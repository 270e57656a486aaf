-- Removes the oldest calls from an index, the newest of which is its first: those whose records are gone, those that were claimed too long
-- ago, and those that stand there once more, because their keys were free and they run again.
--
-- KEYS  1 index  2 key prefix of records  3 base of the partition's keys
-- ARGV  1 calls that were claimed before are removed, ms  2 how many at most
-- Returns {how many are gone}
local NEIGHBOURS = 16
local index, most, callIds = KEYS[1], tonumber(ARGV[2]), nil
callIds = redis.call('LRANGE', index, -most - NEIGHBOURS, -1)
local times = {}
-- When a call was claimed, from its fields 'createdAtMs' and 'ended'.
local function claimedAt(createdAtMs, ended)
  return tonumber(createdAtMs or ended and endedFields(ended).createdAtMs)
end
local function timeOf(position)
  if times[position] == nil then
    times[position] = claimedAt(unpack(redis.call('HMGET', KEYS[2] .. callIds[position], 'createdAtMs', 'ended'))) or false
  end
  return times[position]
end
-- A call behind one that was claimed before it stands in front of that one, too.
local function standsAgain(position)
  for newer = position - 1, math.max(1, position - NEIGHBOURS), -1 do
    if timeOf(newer) and timeOf(newer) < timeOf(position) then return true end
  end
  return false
end
local gone = 0
for position = #callIds, 1, -1 do
  if gone == most then break end
  local at = timeOf(position)
  -- A call that was moved leaves the index when its segment ends.
  if not at and segment_of({KEYS[3]}, {callIds[position]}) then break end
  if at and at >= tonumber(ARGV[1]) and not standsAgain(position) then break end
  gone = gone + 1
end
if gone > 0 then redis.call('LTRIM', index, 0, -gone - 1) end
return {gone}
