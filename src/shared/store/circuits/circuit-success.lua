-- Adds successes to a closed circuit's window, where the script that ended their calls could not.
--
-- KEYS  1 circuits  2 window
-- ARGV  1 circuit's name  2 epoch in which the attempts started  3 window size  4 window time, ms  5 how many, at most the size
-- Returns {the circuit as stored or ''}
local now = nowMs()
for _ = 1, tonumber(ARGV[5]) do addSample(KEYS[1], KEYS[2], ARGV[1], ARGV[2], '1', ARGV[3], ARGV[4], now) end
local _, _, raw = circuitOf(KEYS[1], ARGV[1])
return {raw}
