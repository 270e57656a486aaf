-- Begins a redrive whose calls are written already.
--
-- KEYS  1 the redrive  2 its calls  3 redrives that run, by when they began  4 all redrives, by when they began
-- ARGV  1 ID  2 order (signed JSON)  3 number of batches  4 how long it is kept, ms
-- Returns {code, now}: begun · lost (its calls are not there any more)
local now = nowMs()
if redis.call('EXISTS', KEYS[1]) == 1 then return {'begun', now} end
if ARGV[3] ~= '0' and redis.call('LLEN', KEYS[2]) ~= tonumber(ARGV[3]) then return {'lost', now} end
redis.call('HSET', KEYS[1], 'state', 'running', 'order', ARGV[2], 'batches', ARGV[3], 'position', '0', 'started', '0', 'skipped', '0',
  'fence', '0', 'createdAtMs', text(now), 'updatedAtMs', text(now))
for _, key in ipairs({KEYS[1], KEYS[2]}) do redis.call('PEXPIRE', key, ARGV[4]) end
redis.call('ZADD', KEYS[3], now, ARGV[1])
redis.call('ZADD', KEYS[4], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', now - ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now - ARGV[4])
return {'begun', now}
