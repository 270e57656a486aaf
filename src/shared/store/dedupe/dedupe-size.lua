-- How many records have not expired.
--
-- KEYS  1 index of all, by expiry
-- Returns {how many}
return {redis.call('ZCOUNT', KEYS[1], nowMs(), '+inf')}
