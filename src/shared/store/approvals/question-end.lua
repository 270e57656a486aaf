-- Ends a question, once: a person answered or dismissed it, it has expired, or its call no longer needs an answer.
--
-- KEYS  1 question  2 index of pending questions
-- ARGV  1 question ID  2 state: answered, dismissed, expired or withdrawn  3 answer (JSON), '' for none  4 its signature
--       5 broadcast channel  6 broadcast (JSON)
--       7 token: a script that runs twice, because its first answer was lost, answers the same
-- Returns {code, now, …}:
--   ended
--   already  state, answer or '', its signature or ''
--   late     its time is over    early  ms: it cannot expire yet
--   gone
local now = nowMs()
local state, expiresAtMs, answer, signature, endedBy =
  unpack(redis.call('HMGET', KEYS[1], 'state', 'expiresAtMs', 'answer', 'signature', 'endedBy'))
if not state then return {'gone', now} end
if endedBy == ARGV[7] then return {'ended', now} end
if state ~= 'pending' then return {'already', now, state, answer or '', signature or ''} end
local left = tonumber(expiresAtMs) - now
if ARGV[2] == 'expired' and left > 0 then return {'early', now, left} end
if (ARGV[2] == 'answered' or ARGV[2] == 'dismissed') and left <= 0 then return {'late', now} end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'endedAtMs', now, 'endedBy', ARGV[7])
if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'answer', ARGV[3], 'signature', ARGV[4]) end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('PUBLISH', ARGV[5], ARGV[6])
return {'ended', now}
