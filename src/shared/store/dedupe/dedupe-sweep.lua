-- Forgets records that have expired: Redis has removed them, the indexes still list them.
--
-- KEYS  1 index of all, by expiry  2 finished records, by last use
-- ARGV  1 how many at most
-- Returns {how many}
local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. nowMs(), 'LIMIT', 0, ARGV[1])
if #expired > 0 then
  redis.call('ZREM', KEYS[1], unpack(expired))
  redis.call('ZREM', KEYS[2], unpack(expired))
end
return {#expired}
