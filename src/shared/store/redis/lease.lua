-- Takes, renews or gives back a lease.
--
-- KEYS  1 lease
-- ARGV  1 who asks  2 lease, ms; 0 gives it back
-- Returns {1} for its holder, {0} when another process has it
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {0} end
if ARGV[2] == '0' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
return {1}
