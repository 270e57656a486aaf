-- Ends a call: writes the outcome once, and tells every producer that waits. Only the newest fence may.
--
-- KEYS  1 record  2 in-flight index  3 circuits  4 window of the call's circuit  5 where a large outcome is kept (or the record again)
--       6 bucket of the tool's retries
-- ARGV  1 fence  2 state  3 outcome (JSON)  4 attempts  5 time to live, ms  6 '1' when asking again may help
--       7 call ID  8 key prefix of inboxes  9 reference to a large outcome, whose text is kept apart; '' when it is the third
--       10 circuit's name, '' counts nothing  11 its epoch  12 window size  13 window time, ms
--       14 largest outcome that travels with the event, bytes
--       15 tokens that this success puts back, '' for none  16 floor  17 capacity  18 how long the bucket is kept, ms
--       19 the outcome's signature  20 index of calls in doubt, by when they are forgotten
-- Returns {code, now}: settled · fenced (a newer attempt holds the call) · ended (it has its outcome already) · gone
-- Fails with UNKEPT when the text of a large outcome is not there; nothing was written.
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'fence', 'inboxes', 'version', 'paramsAt')
if not fields[1] then return {'gone', now} end
if fields[1] ~= 'inflight' then return {'ended', now} end
if (fields[2] or '0') ~= ARGV[1] then return {'fenced', now} end

local ttlMs = tonumber(ARGV[5])
local large = ARGV[9] ~= ''
if large and redis.call('EXISTS', KEYS[5]) == 0 then error('UNKEPT: the text of a large outcome is not there') end
redis.call('HSET', KEYS[1], large and 'outcomeParts' or 'outcome', large and ARGV[9] or ARGV[3], 'state', ARGV[2], 'attempts', ARGV[4],
  'outcomeSignature', ARGV[19],
  'retriable', ARGV[6], 'updatedAtMs', text(now), 'expiresAtMs', text(now + ttlMs), 'version', text(fields[4] + 1))
redis.call('HDEL', KEYS[1], 'phase', 'inboxes', 'lockUntilMs', 'notBeforeMs', 'worker', 'token', 'cancelRequested')
redis.call('PEXPIRE', KEYS[1], ARGV[5])
if fields[5] then redis.call('PEXPIRE', fields[5], ttlMs) end
if large then
  redis.call('HSET', KEYS[1], 'outcomeAt', KEYS[5])
  redis.call('PEXPIRE', KEYS[5], ttlMs)
end
later('ZREM', KEYS[2], ARGV[7])
if ARGV[2] == 'failed' and isUnknown(ARGV[3]) then redis.call('ZADD', ARGV[20], now + ttlMs, ARGV[7]) end
if ARGV[10] ~= '' then addSample(KEYS[3], KEYS[4], ARGV[10], ARGV[11], '1', ARGV[12], ARGV[13], now) end
if ARGV[15] ~= '' then refillRetries(KEYS[6], ARGV[15], ARGV[16], ARGV[17], ARGV[18]) end
notify(fields[3], ARGV[8], settledEvent(ARGV[7], ARGV[2], ARGV[19], not large and #ARGV[3] <= tonumber(ARGV[14]) and ARGV[3] or nil, now))
return {'settled', now}
