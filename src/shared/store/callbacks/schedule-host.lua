-- Sets the time of a host's next callback: when one is due, the host's pause is over and one of its slots is free.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 host
-- Returns the number of free slots.
local base, host, now = KEYS[1], ARGV[1], nowMs()
local leased, hosts = base .. ':callbacks:leased:' .. host, base .. ':callbacks:hosts'
redis.call('ZREMRANGEBYSCORE', leased, '-inf', text(now))
local failures, untilMs = string.match(redis.call('HGET', base .. ':callbacks:pauses', host) or '', '^(%d+) (%d+)$')
local slots = failures and 1 or tonumber(SLOTS_OF_HOST)
local free = slots - redis.call('ZCARD', leased)
local first = redis.call('ZRANGE', base .. ':callbacks:due:' .. host, 0, 0, 'WITHSCORES')
if not first[1] then
  redis.call('ZREM', hosts, host)
  return 0
end
local at = math.max(tonumber(first[2]), tonumber(untilMs or 0))
if free < 1 then at = math.max(at, tonumber(redis.call('ZRANGE', leased, 0, 0, 'WITHSCORES')[2])) end
redis.call('ZADD', hosts, text(at), host)
return tonumber(untilMs or 0) > now and 0 or free
