-- Reads the state of an offered call. If no client is left, the call is closed: no client can take or answer it any more.
-- Reading a waiting call also extends the TTL of the tool's list of waiting calls, and restores the list if it has expired.
--
-- KEYS  1 call  2 waiting calls of the tool  3 clients of the tool
-- ARGV  1 call ID  2 TTL of the record, ms  3 tool  4 broadcast channel
-- Returns {state, …}:
--   waiting     for a client    no-client  no client is left, and the offer is removed
--   taken       remaining ms of its client's lease, newest progress (JSON) or ''
--   answered    fence, answer (signed)
--   lost        its client's lease ended     withdrawn     unknown  there is no record
local now = nowMs()
local state, client, fence, answer, progress =
  unpack(redis.call('HMGET', KEYS[1], 'state', 'client', 'fence', 'answer', 'progress'))
if not state then return {'unknown'} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if state == 'waiting' and redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') == 0 then
  redis.call('LREM', KEYS[2], 0, ARGV[1])
  redis.call('DEL', KEYS[1])
  return {'no-client'}
end
if state == 'waiting' and redis.call('PEXPIRE', KEYS[2], ARGV[2]) == 0 then
  redis.call('RPUSH', KEYS[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  redis.call('PUBLISH', ARGV[4], '{"type":"offered","tool":"' .. ARGV[3] .. '"}')
end
if state == 'answered' then return {state, tonumber(fence), answer} end
if state ~= 'taken' then return {state} end
local left = tonumber(redis.call('ZSCORE', KEYS[3], client) or 0) - now
if left > 0 then return {state, left, progress or ''} end
redis.call('HSET', KEYS[1], 'state', 'lost')
return {'lost'}
