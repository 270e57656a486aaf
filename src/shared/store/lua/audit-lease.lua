-- Takes or renews the lease of the one who seals the trail, and hands out what is to be sealed.
--
-- KEYS  1 lease  2 head  3 records that wait
-- ARGV  1 who asks  2 lease, ms  3 how many entries at most  4 ID of a trail, when there is none yet
-- Returns {trail, seq, seal, {{entry ID, {field, value, …}}, …}}; nothing when another one has the lease
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HSET', KEYS[2], 'trail', ARGV[4], 'seq', '0', 'seal', ARGV[4])
end
local head = redis.call('HMGET', KEYS[2], 'trail', 'seq', 'seal')
return {head[1], head[2], head[3], redis.call('XRANGE', KEYS[3], '-', '+', 'COUNT', ARGV[3])}
