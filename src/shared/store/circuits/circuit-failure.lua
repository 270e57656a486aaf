-- Adds a failure to a closed circuit's window and returns all that the rule needs to decide whether it opens.
--
-- KEYS  1 circuits  2 window
-- ARGV  1 circuit's name  2 epoch in which the attempt started  3 window size  4 window time, ms  5 successes that came before it
-- Returns {now, the circuit as stored or '', outcome, outcome, …} with the newest outcome first
local now = nowMs()
addSample(KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[5] == '0' and '0' or '0:' .. ARGV[5], ARGV[3], ARGV[4], now)
local _, _, raw = circuitOf(KEYS[1], ARGV[1])
return {now, raw, unpack(redis.call('LRANGE', KEYS[2], 0, -1))}
