-- Stores the number of shards for new sessions of a tier, and broadcasts the change.
--
-- KEYS  1 layout
-- ARGV  1 tier  2 number of shards  3 '1' only if no number is stored yet  4 broadcast channel
-- Returns {number before, most shards that there ever were before}
local current, made = unpack(redis.call('HMGET', KEYS[1], ARGV[1], ARGV[1] .. ':made'))
current, made = tonumber(current or 1), tonumber(made or 1)
if ARGV[3] == '1' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return {current, made} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], ARGV[1] .. ':made', math.max(made, ARGV[2]))
redis.call('PUBLISH', ARGV[4], '{"type":"shards"}')
return {current, made}
