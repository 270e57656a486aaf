-- Leases due callbacks to one sender. A host gets at most as many as it has slots; a failing host has one.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 token of the leases  2 lease, ms  3 how many at most
-- Returns {ms until the partition's next callback is due, -1 for never, {ID, fields…}, …}, and whether any was taken
local MAX_HOSTS = 64
local base, now, most = KEYS[1], nowMs(), tonumber(ARGV[3])
local hosts, taken = base .. ':callbacks:hosts', {0}
for _, host in ipairs(redis.call('ZRANGEBYSCORE', hosts, '-inf', text(now), 'LIMIT', 0, MAX_HOSTS)) do
  local room = most - (#taken - 1)
  if room < 1 then break end
  local due, leased = base .. ':callbacks:due:' .. host, base .. ':callbacks:leased:' .. host
  local free = schedule_host({base}, {host})
  local ids = free > 0 and redis.call('ZRANGEBYSCORE', due, '-inf', text(now), 'LIMIT', 0, math.min(free, room)) or {}
  for _, id in ipairs(ids) do
    local key = base .. ':callback:' .. id
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', due, id)
    else
      local untilMs = text(now + ARGV[2])
      redis.call('HSET', key, 'token', ARGV[1])
      redis.call('HINCRBY', key, 'attempts', 1)
      redis.call('ZADD', due, untilMs, id)
      redis.call('ZADD', leased, untilMs, id)
      taken[#taken + 1] = {id, unpack(redis.call('HGETALL', key))}
    end
  end
  schedule_host({base}, {host})
end
local first = redis.call('ZRANGE', hosts, 0, 0, 'WITHSCORES')
taken[1] = first[2] and math.max(0, tonumber(first[2]) - now) or -1
return taken, #taken > 1
