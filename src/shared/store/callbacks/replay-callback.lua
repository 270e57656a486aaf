-- Schedules a callback again, at once and with retries for another day. One that is being sent is not sent twice.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 ID  2 broadcast channel
-- Returns {code}: queued · gone
local base, id, now = KEYS[1], ARGV[1], nowMs()
local key = base .. ':callback:' .. id
local host, token = unpack(redis.call('HMGET', key, 'host', 'token'))
if not host then return {'gone'} end
redis.call('HSET', key, 'state', 'pending', 'sinceMs', text(now), 'dueAtMs', text(now))
redis.call('PEXPIRE', key, CALLBACK_KEPT_MS)
redis.call('ZREM', base .. ':callbacks:failing', id)
redis.call('HDEL', base .. ':callbacks:pauses', host)
local leased = token and redis.call('ZSCORE', base .. ':callbacks:leased:' .. host, id)
if not (leased and tonumber(leased) > now) then redis.call('ZADD', base .. ':callbacks:due:' .. host, text(now), id) end
schedule_host({base}, {host})
redis.call('PUBLISH', ARGV[2], '{"type":"callback"}')
return {'queued'}
