-- Adds a failure to a closed circuit's window and returns all that the rule needs to decide whether it opens.
--
-- KEYS  1 circuits  2 window
-- ARGV  1 the circuit, the epoch in which the attempt started and the window's bounds (JSON, `CircuitSample`)
--       2 successes that came before it
-- Returns {now, the circuit as stored or '', outcome, outcome, …} with the newest outcome first
local now, sample = nowMs(), cjson.decode(ARGV[1])
addSample(KEYS[1], KEYS[2], sample, ARGV[2] == '0' and '0' or '0:' .. ARGV[2], now)
local _, _, raw = circuitOf(KEYS[1], sample.circuit)
return {now, raw, unpack(redis.call('LRANGE', KEYS[2], 0, -1))}
