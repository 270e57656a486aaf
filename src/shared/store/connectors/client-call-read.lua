-- Reads the state of an offered call. If its clients are gone, the call is closed: no client can take or answer it any more.
-- While it waits, so does its place among those that do.
--
-- KEYS  1 call  2 calls of the tool that wait  3 clients of the tool
-- ARGV  1 call ID  2 how long it is kept, ms  3 tool  4 broadcast channel
-- Returns {state, …}:
--   waiting     for a client    no-client  there is none; the call is not offered any more
--   taken       ms that its client's lease lasts, newest progress (JSON) or ''
--   answered    fence, answer (signed)
--   lost        its client is gone     withdrawn     unknown  there is no record
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
