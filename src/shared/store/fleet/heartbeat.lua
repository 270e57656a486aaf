-- Writes a worker's heartbeat, and removes workers whose heartbeat is too old.
--
-- KEYS  1 workers, by the time of their last heartbeat  2 their records
-- ARGV  1 worker ID  2 record (JSON), '' when the worker leaves  3 age at which a heartbeat is too old, ms  4 broadcast channel
--       5 '1' when the worker offers something else than before
-- Returns {now, 1 for a worker that is new, was silent, or seems so because Redis' clock was set; else 0}
local now = nowMs()
if ARGV[2] == '' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
  redis.call('PUBLISH', ARGV[4], '{"type":"catalogue"}')
  return {now, 0}
end
local beatAt = redis.call('ZSCORE', KEYS[1], ARGV[1])
local joined = not beatAt or math.abs(now - beatAt) >= tonumber(ARGV[3])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local silent = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
if #silent > 0 then
  redis.call('ZREM', KEYS[1], unpack(silent))
  redis.call('HDEL', KEYS[2], unpack(silent))
end
if joined or #silent > 0 or ARGV[5] == '1' then redis.call('PUBLISH', ARGV[4], '{"type":"catalogue"}') end
return {now, joined and 1 or 0}
