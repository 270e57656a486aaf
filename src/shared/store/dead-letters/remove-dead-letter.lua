-- Takes a call out of the indices of dead letters.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID
-- Returns whether it was one.
local base, callId = KEYS[1], ARGV[1]
local facts = redis.call('HGET', base .. DEAD_LETTER_FACTS, callId)
if facts then
  local tenant = cjson.decode(facts)[5]
  if tenant ~= '' then redis.call('ZREM', base .. DEAD_LETTERS_OF .. tenant, callId) end
  redis.call('HDEL', base .. DEAD_LETTER_FACTS, callId)
end
return redis.call('ZREM', base .. DEAD_LETTERS, callId) == 1
