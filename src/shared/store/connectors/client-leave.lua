-- Removes a client. The calls that it ran are lost. Their workers, and those that wait for a client, are notified at once.
--
-- KEYS  1 client  2 calls that it has taken
-- ARGV  1 client ID  2 prefix of all keys of clients  3 broadcast channel
-- Returns {1}, {0} when its lease had ended before
local function notify(callId)
  redis.call('PUBLISH', ARGV[3], '{"type":"handover","callId":"' .. callId .. '"}')
end
for _, callId in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  local call = ARGV[2] .. 'call:' .. callId
  local state, client = unpack(redis.call('HMGET', call, 'state', 'client'))
  if state == 'taken' and client == ARGV[1] then
    redis.call('HSET', call, 'state', 'lost')
    notify(callId)
  end
end
local tools = redis.call('HGET', KEYS[1], 'tools')
for tool in string.gmatch(tools or '', '%S+') do
  redis.call('ZREM', ARGV[2] .. 'tool:' .. tool, ARGV[1])
  for _, callId in ipairs(redis.call('LRANGE', ARGV[2] .. 'waiting:' .. tool, 0, 999)) do notify(callId) end
end
redis.call('DEL', KEYS[1], KEYS[2])
return {tools and 1 or 0}
