-- Stops a redrive that runs: the calls that it has not reached stay dead letters.
--
-- KEYS  1 the redrive  2 redrives that run
-- ARGV  1 ID
-- Returns {state, now}, '' for none of this ID.
local state = redis.call('HGET', KEYS[1], 'state')
if state == 'running' then
  state = 'stopped'
  redis.call('HSET', KEYS[1], 'state', state, 'updatedAtMs', text(nowMs()))
  redis.call('ZREM', KEYS[2], ARGV[1])
end
return {state or '', nowMs()}
