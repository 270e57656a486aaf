-- Stores the result of sending a callback.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 ID  2 token of its lease  3 state: delivered, failing (it is sent again) or failed (it is not)  4 delay, ms
--       5 what happened (JSON)  6 '1' when the host is to blame, '0' when it answered, '' when neither
-- Returns {code}: written · stale (another sender has the lease, or the callback is gone)
local MAX_PAUSE_MS = 60000
local base, id, now = KEYS[1], ARGV[1], nowMs()
local key = base .. ':callback:' .. id
local token, host, settledAt = unpack(redis.call('HMGET', key, 'token', 'host', 'settledAtMs'))
if token ~= ARGV[2] then return {'stale'} end
local due, pauses = base .. ':callbacks:due:' .. host, base .. ':callbacks:pauses'
redis.call('HSET', key, 'state', ARGV[3], 'last', ARGV[5], 'lastAtMs', text(now))
redis.call('HDEL', key, 'token')
redis.call('ZREM', base .. ':callbacks:leased:' .. host, id)
if ARGV[3] == 'failing' then
  redis.call('HSET', key, 'dueAtMs', text(now + ARGV[4]))
  redis.call('ZADD', due, text(now + ARGV[4]), id)
else
  redis.call('HDEL', key, 'dueAtMs')
  redis.call('ZREM', due, id)
end
if ARGV[3] == 'delivered' then
  redis.call('ZREM', base .. ':callbacks:failing', id)
else
  redis.call('ZADD', base .. ':callbacks:failing', settledAt, id)
end
if ARGV[6] == '1' then
  local failures = (tonumber(string.match(redis.call('HGET', pauses, host) or '0', '^%d+'))) + 1
  local pause = math.min(MAX_PAUSE_MS, 1000 * 2 ^ (math.min(failures, 10) - 1))
  redis.call('HSET', pauses, host, text(failures) .. ' ' .. text(now + pause))
elseif ARGV[6] == '0' then
  redis.call('HDEL', pauses, host)
end
schedule_host({base}, {host})
return {'written'}
