-- Takes the oldest message out of an agent's mailbox: nobody else gets it.
--
-- KEYS  1 record  2 mailbox  3 agents of the session that are not closed
-- ARGV  1 agent
-- Returns {turn and message}, {} when there is none
local message = redis.call('LPOP', KEYS[2])
if not message then return {} end
local state = redis.call('HGET', KEYS[1], 'state')
if state == 'queued' then redis.call('HSET', KEYS[1], 'state', 'running') end
if state == 'closed' and redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[3], ARGV[1]) end
return {message}
