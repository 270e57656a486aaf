-- Removes the oldest calls from the end of an index: those without a record, those that were claimed too long ago, and those that are in
-- the index again further ahead, because they run again.
--
-- KEYS  1 index  2 base of the partition's keys
-- ARGV  1 calls that were claimed before are removed, ms  2 maximum to remove, a multiple of 16
-- Returns {number of removed calls}
local STEP, NEIGHBOURS = 16, 16
local index = KEYS[1]

-- How many of the last calls of a list can be removed. Usually none of them has a record, and no call was moved.
local function countRemovable(callIds)
  local first, records, times = math.max(1, #callIds - STEP + 1), {KEYS[2] .. SEGMENTS}, {}
  for position = first, #callIds do records[#records + 1] = KEYS[2] .. RECORDS .. callIds[position] end
  if redis.call('EXISTS', unpack(records)) == 0 then return #records - 1 end
  -- The time of the claim, from the fields 'createdAtMs' and 'ended'.
  local function timeOf(position)
    if times[position] == nil then
      local createdAtMs, ended = unpack(redis.call('HMGET', KEYS[2] .. RECORDS .. callIds[position], 'createdAtMs', 'ended'))
      times[position] = tonumber(createdAtMs or ended and endedFields(ended).createdAtMs) or false
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
  for position = #callIds, first, -1 do
    local time = timeOf(position)
    -- A moved call leaves the index when its segment ends.
    if not time and segment_of({KEYS[2]}, {callIds[position]}) then return #callIds - position end
    if time and time >= tonumber(ARGV[1]) and not isRepeated(position) then return #callIds - position end
  end
  return #callIds - first + 1
end

local removed, count = 0
repeat
  count = countRemovable(redis.call('LRANGE', index, -removed - STEP - NEIGHBOURS, -removed - 1))
  removed = removed + count
until count < STEP or removed >= tonumber(ARGV[2])
if removed > 0 then redis.call('LTRIM', index, 0, -removed - 1) end
return {removed}
