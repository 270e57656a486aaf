-- Finds calls that succeeded long enough ago, going from younger to older ones.
--
-- KEYS  1 index of all calls  2 base of the partition's keys
-- ARGV  1 position to go on from, '' for the first call that was claimed long enough ago  2 number of calls to look at
--       3 age that counts as long enough, ms  4 how much longer their records must live, ms
-- Returns {next position, how many were looked at, then for each call: ID, when its record ends, its fields and values}
local index, base, now = KEYS[1], KEYS[2], nowMs()
local before = now - ARGV[3]
local function claimedAt(callId)
  local createdAtMs, ended = unpack(redis.call('HMGET', base .. RECORDS .. callId, 'createdAtMs', 'ended'))
  return tonumber(createdAtMs or ended and endedFields(ended).createdAtMs)
end
local position = tonumber(ARGV[1])
if not position then
  -- The index is about in order of time. A call without a record is an old one.
  local young, old = -1, redis.call('LLEN', index)
  while old - young > 1 do
    local middle = math.floor((young + old) / 2)
    local at = claimedAt(redis.call('LINDEX', index, middle))
    if at and at > before then young = middle else old = middle end
  end
  position = old
end
local callIds = redis.call('LRANGE', index, position, position + ARGV[2] - 1)
local found = {position + #callIds, #callIds}
for _, callId in ipairs(callIds) do
  local record = base .. RECORDS .. callId
  local state, ended, segment = unpack(redis.call('HMGET', record, 'state', 'ended', 'segment'))
  local settledAtMs = state == 'done' and ended and not segment and tonumber(endedFields(ended).updatedAtMs)
  if settledAtMs and settledAtMs <= before then
    local leftMs = redis.call('PTTL', record)
    if leftMs >= tonumber(ARGV[4]) then
      local last = #found
      found[last + 1], found[last + 2], found[last + 3] = callId, text(now + leftMs), redis.call('HGETALL', record)
    end
  end
end
return found
