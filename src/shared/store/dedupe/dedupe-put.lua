-- Puts a record in the place of the version that is expected there: 0 claims a key that has none.
--
-- KEYS  1 record  2 index of all, by expiry  3 finished records, by last use
-- ARGV  1 key  2 expected version  3 record (JSON)  4 its state  5 when it expires, ms since the epoch  6 largest number of
--       records, 0 for any  7 token: a script that runs twice, because its first answer was lost, answers the same
-- Returns {code, …}:
--   put
--   other  record (JSON) or nil: what stands there instead
--   full   key or nil: the finished record that was used longest ago; nil when all are in flight
local now = nowMs()
local stored = redis.call('HMGET', KEYS[1], 'version', 'record', 'state', 'writer')
local capped = ARGV[6] ~= '0'

-- Microseconds, so that two uses never tie.
local function use()
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[3], time[1] * 1000000 + time[2], ARGV[1])
end

if stored[4] == ARGV[7] then return {'put'} end
if (stored[1] or '0') ~= ARGV[2] then
  if capped and stored[1] and stored[3] ~= 'inflight' then use() end
  return {'other', stored[2]}
end
if capped and ARGV[2] == '0' and redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[6]) then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. now)
  if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[6]) then
    local oldest
    repeat
      oldest = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
      local stale = oldest and not redis.call('ZSCORE', KEYS[2], oldest)
      if stale then redis.call('ZREM', KEYS[3], oldest) end
    until not stale
    return {'full', oldest}
  end
end

redis.call('HSET', KEYS[1], 'version', ARGV[2] + 1, 'record', ARGV[3], 'state', ARGV[4], 'writer', ARGV[7])
redis.call('PEXPIREAT', KEYS[1], ARGV[5])
redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
-- An index lives as long as what it lists.
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
redis.call('PEXPIREAT', KEYS[2], last)
if ARGV[4] == 'inflight' then
  redis.call('ZREM', KEYS[3], ARGV[1])
elseif capped then
  use()
  redis.call('PEXPIREAT', KEYS[3], last)
end
return {'put'}
