-- Replaces a circuit by its next state if it is still the one that was read, and broadcasts it. A new epoch starts with an empty window.
--
-- KEYS  1 circuits  2 window  3 history, the newest first
-- ARGV  1 circuit's name  2 epoch that the change was decided on  3 next state as stored  4 broadcast channel  5 broadcast (JSON)
--       6 the change (JSON) for the history  7 how many are kept  8 for how long, ms
-- Returns {'changed' or 'stale', the circuit as stored or ''}
local epoch, _, raw = circuitOf(KEYS[1], ARGV[1])
if epoch ~= ARGV[2] then return {'stale', raw} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
forgetTargets(KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
redis.call('LPUSH', KEYS[3], nowMs() .. '|' .. ARGV[6])
redis.call('LTRIM', KEYS[3], 0, ARGV[7] - 1)
redis.call('PEXPIRE', KEYS[3], ARGV[8])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return {'changed', ARGV[3]}
