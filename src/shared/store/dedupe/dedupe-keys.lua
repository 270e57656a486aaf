-- Keys of an index whose records have not expired, the first to expire first.
--
-- KEYS  1 index
-- ARGV  1 how many at most, -1 for all
-- Returns {key, …}
return redis.call('ZRANGEBYSCORE', KEYS[1], nowMs(), '+inf', 'LIMIT', 0, ARGV[1])
