-- Copies a circuit into a shard, whose scripts cannot read the original. An older copy does not replace a newer one.
--
-- KEYS  1 circuits of the shard
-- ARGV  1 circuit's name  2 epoch  3 the circuit as stored
-- Returns {'copied' or 'stale'}
local epoch = circuitOf(KEYS[1], ARGV[1])
if tonumber(epoch) >= tonumber(ARGV[2]) then return {'stale'} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
forgetTargets(KEYS[1], ARGV[1])
return {'copied'}
