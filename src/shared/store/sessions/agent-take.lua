-- Takes the oldest message out of an agent's mailbox, for one taker. A taker whose answer was lost asks again with the same token, and
-- gets the same message. A closed agent stays in its session's index until its mailbox was found empty.
--
-- KEYS  1 record  2 mailbox  3 agents of the session that are not closed, or whose end was not read yet
-- ARGV  1 agent  2 token of the taker
-- Returns {turn and message}, {} when there is none
local state, token, taken = unpack(redis.call('HMGET', KEYS[1], 'state', 'taker', 'taken'))
if token == ARGV[2] then return {taken} end
local message = redis.call('LPOP', KEYS[2])
if not message then
  if state == 'closed' then redis.call('SREM', KEYS[3], ARGV[1]) end
  return {}
end
if state then redis.call('HSET', KEYS[1], 'taker', ARGV[2], 'taken', message) end
if state == 'queued' then redis.call('HSET', KEYS[1], 'state', 'running') end
return {message}
