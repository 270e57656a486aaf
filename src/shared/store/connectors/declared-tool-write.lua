-- Writes one revision of a tool's record in the registry, if the one before it is still what the writer saw, and broadcasts it.
--
-- KEYS  1 specs  2 changes  3 sequence  4 history
-- ARGV  1 tool  2 revision that the writer saw, '0' for none  3 'REVISION SIGNATURE RECORD'  4 revisions to keep  5 broadcast channel
-- Returns {1, sequence}, or {0, revision} when another one stands there
local stored = redis.call('HGET', KEYS[1], ARGV[1])
-- The first answer was lost on the way and the script came again.
if stored == ARGV[3] then return {1, tonumber(redis.call('GET', KEYS[3]))} end
local revision = stored and string.match(stored, '^(%d+) ') or '0'
if revision ~= ARGV[2] then return {0, tonumber(revision)} end
local sequence = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[2], sequence, ARGV[1])
redis.call('LPUSH', KEYS[4], ARGV[3])
redis.call('LTRIM', KEYS[4], 0, ARGV[4] - 1)
redis.call('PUBLISH', ARGV[5], '{"type":"specs"}')
return {1, sequence}
