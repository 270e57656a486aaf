-- Adds successes to a closed circuit's window, where the script that ended their calls could not.
--
-- KEYS  1 circuits  2 window
-- ARGV  1 the circuit, the epoch in which the attempts started and the window's bounds (JSON, `CircuitSample`)
--       2 how many, at most the window's size
-- Returns {the circuit as stored or ''}
local now, sample = nowMs(), cjson.decode(ARGV[1])
for _ = 1, tonumber(ARGV[2]) do addSample(KEYS[1], KEYS[2], sample, '1', now) end
local _, _, raw = circuitOf(KEYS[1], sample.circuit)
return {raw}
