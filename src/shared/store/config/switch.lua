-- Stores an operator's switch of the reliability layer, and broadcasts it.
--
-- KEYS  1 switches
-- ARGV  1 tool, or '*' for all, which removes the switches of single tools  2 '1' enabled, '0' disabled  3 reason, '' for none
--       4 broadcast channel
-- Returns {now}
local now = nowMs()
if ARGV[1] == '*' then redis.call('DEL', KEYS[1]) end
local switch = '{"enabled":' .. (ARGV[2] == '1' and 'true' or 'false') .. ',"atMs":' .. string.format('%.0f', now)
if ARGV[3] ~= '' then switch = switch .. ',"reason":' .. cjson.encode(ARGV[3]) end
redis.call('HSET', KEYS[1], ARGV[1], switch .. '}')
redis.call('PUBLISH', ARGV[4], '{"type":"switches"}')
return {now}
