-- Writes one revision of a tool's record in the registry, if the stored revision is still the one that the writer read, and
-- broadcasts it.
--
-- KEYS  1 specs  2 changes  3 sequence  4 history
-- ARGV  1 tool  2 revision that the writer read, '0' for none  3 'REVISION SIGNATURE RECORD'  4 revisions to keep  5 broadcast channel
-- Returns {1, sequence}, or {0, revision} when another revision is stored
local stored = redis.call('HGET', KEYS[1], ARGV[1])
-- The first reply was lost, and the client sent the script again.
if stored == ARGV[3] then return {1, tonumber(redis.call('GET', KEYS[3]))} end
local revision = stored and string.match(stored, '^(%d+) ') or '0'
if revision ~= ARGV[2] then return {0, tonumber(revision)} end
-- A sequence that cannot be read goes on after the last change.
if not string.match(redis.call('GET', KEYS[3]) or '0', '^%d+$') then
  redis.call('SET', KEYS[3], redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0)
end
local sequence = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('ZADD', KEYS[2], sequence, ARGV[1])
redis.call('LPUSH', KEYS[4], ARGV[3])
redis.call('LTRIM', KEYS[4], 0, ARGV[4] - 1)
redis.call('PUBLISH', ARGV[5], '{"type":"specs"}')
return {1, sequence}
