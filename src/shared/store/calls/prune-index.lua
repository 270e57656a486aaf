-- Removes the oldest calls from the end of an index: those without a record, those that were claimed too long ago, and those that are in
-- the index again further ahead, because they run again.
--
-- KEYS  1 index  2 key prefix of records  3 base of the partition's keys
-- ARGV  1 calls that were claimed before are removed, ms  2 maximum to remove
-- Returns {number of removed calls}
local NEIGHBOURS, CHUNK = 16, 16
local index, maxRemoved = KEYS[1], tonumber(ARGV[2])
local callIds = redis.call('LRANGE', index, -maxRemoved - NEIGHBOURS, -1)
local times = {}
-- The time of the claim, from the fields 'createdAtMs' and 'ended'.
local function claimedAt(createdAtMs, ended)
  return tonumber(createdAtMs or ended and endedFields(ended).createdAtMs)
end
local function timeOf(position)
  if times[position] == nil then
    times[position] = claimedAt(unpack(redis.call('HMGET', KEYS[2] .. callIds[position], 'createdAtMs', 'ended'))) or false
  end
  return times[position]
end
-- Whether the call is in the index again further ahead: then an older call is in front of this entry.
local function isRepeated(position)
  for newer = position - 1, math.max(1, position - NEIGHBOURS), -1 do
    if timeOf(newer) and timeOf(newer) < timeOf(position) then return true end
  end
  return false
end
-- Usually the oldest calls have no record any more, and no call was moved: one command shows that for several of them.
local function areGone(first, last)
  local records = {'EXISTS', KEYS[3] .. SEGMENTS}
  for position = first, last do records[#records + 1] = KEYS[2] .. callIds[position] end
  return redis.call(unpack(records)) == 0
end
local removed = 0
while removed + CHUNK <= math.min(maxRemoved, #callIds) and areGone(#callIds - removed - CHUNK + 1, #callIds - removed) do
  removed = removed + CHUNK
end
for position = #callIds - removed, 1, -1 do
  if removed == maxRemoved then break end
  local time = timeOf(position)
  -- A moved call leaves the index when its segment ends.
  if not time and segment_of({KEYS[3]}, {callIds[position]}) then break end
  if time and time >= tonumber(ARGV[1]) and not isRepeated(position) then break end
  removed = removed + 1
end
if removed > 0 then redis.call('LTRIM', index, 0, -removed - 1) end
return {removed}
