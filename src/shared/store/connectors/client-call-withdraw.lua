-- Withdraws a call whose worker no longer waits for it.
--
-- KEYS  1 call  2 waiting calls of the tool
-- ARGV  1 call ID  2 tool  3 broadcast channel
-- Returns {code, …}: untouched, no client had taken it · taken, its client is notified · answered, fence and answer (signed) · gone
local state, fence, answer = unpack(redis.call('HMGET', KEYS[1], 'state', 'fence', 'answer'))
if state == 'waiting' then
  redis.call('LREM', KEYS[2], 0, ARGV[1])
  redis.call('DEL', KEYS[1])
  return {'untouched'}
end
if state == 'answered' then return {state, tonumber(fence), answer} end
if state ~= 'taken' then return {'gone'} end
redis.call('HSET', KEYS[1], 'state', 'withdrawn')
redis.call('PUBLISH', ARGV[3], '{"type":"offered","tool":"' .. ARGV[2] .. '"}')
return {'taken'}
