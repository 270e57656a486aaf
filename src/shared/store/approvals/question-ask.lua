-- Stores a question to people. A question that exists is not stored again: a call that runs again gets the answer to the first one.
--
-- KEYS  1 question  2 index of pending questions, by expiry
-- ARGV  1 question ID  2 signature and question (JSON)  3 time to answer, ms  4 how long an end is kept, ms
-- Returns {state, now, expiresAtMs, answer or '', its signature or ''}
local now = nowMs()
local state, expiresAtMs, answer, signature = unpack(redis.call('HMGET', KEYS[1], 'state', 'expiresAtMs', 'answer', 'signature'))
if state == 'pending' or state == 'answered' or state == 'dismissed' then
  return {state, now, tonumber(expiresAtMs), answer or '', signature or ''}
end
expiresAtMs = now + ARGV[3]
redis.call('HSET', KEYS[1], 'state', 'pending', 'question', ARGV[2], 'createdAtMs', now, 'expiresAtMs', expiresAtMs)
redis.call('PEXPIRE', KEYS[1], ARGV[3] + ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], expiresAtMs, ARGV[1])
return {'pending', now, expiresAtMs, '', ''}
