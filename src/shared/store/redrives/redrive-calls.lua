-- Writes batches of the calls of a redrive that has not begun. A script that runs twice, because its first answer was lost, writes them once.
--
-- KEYS  1 its calls
-- ARGV  1 number of batches before these  2 how long they are kept, ms  3.. batches (signed JSON)
-- Returns {number of batches}
if redis.call('LLEN', KEYS[1]) == tonumber(ARGV[1]) then redis.call('RPUSH', KEYS[1], unpack(ARGV, 3)) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {redis.call('LLEN', KEYS[1])}
