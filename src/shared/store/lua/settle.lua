-- Ends a call: writes the outcome once, and tells every producer that waits. Only the newest fence may.
--
-- KEYS  1, 2 bases of keys: of the place, and of what a tier's places share
-- ARGV  1 call ID  2 fence  3 state  4 outcome (JSON)  5 its signature  6 attempts  7 time to live, ms  8 '1' when asking again may help
--       9 key of an outcome whose text is kept apart, '' when it is the fourth  10 what that is called, when it is in one piece, or
--       11 the reference to its parts; '' for the other
--       12 what a success adds to its circuit's window: epoch, window size, window time, ms, and the circuit's name; '' counts nothing
--       13 what it puts back into the bucket of its tool's retries, as refillRetries takes it; '' for nothing
-- Returns {code, now}: settled · fenced (a newer attempt holds the call) · ended (it has its outcome already) · gone
-- Fails with UNKEPT when the text of an outcome is not there; nothing was written.
local base, callId, apart = KEYS[1], ARGV[1], ARGV[9] ~= ''
local record, now = base .. RECORDS .. callId, nowMs()
local fields = redis.call('HMGET', record, 'state', 'fence', 'inboxes', 'version', 'paramsAt')
if not fields[1] then return {'gone', now} end
if fields[1] ~= 'inflight' then return {'ended', now} end
if (fields[2] or '0') ~= ARGV[2] then return {'fenced', now} end

-- The record and what it refers to end together: Redis' clock may go on between two commands.
local expiresAt = text(now + ARGV[7])
if apart and redis.call('EXISTS', ARGV[9]) == 0 then error('UNKEPT: the text of an outcome is not there') end
redis.call('HSET', record, apart and 'outcomeAt' or 'outcome', apart and ARGV[9] or ARGV[4], 'state', ARGV[3], 'attempts', ARGV[6],
  'outcomeSignature', ARGV[5], 'retriable', ARGV[8], 'updatedAtMs', text(now), 'expiresAtMs', expiresAt, 'version', text(fields[4] + 1))
redis.call('HDEL', record, 'phase', 'inboxes', 'lockUntilMs', 'notBeforeMs', 'worker', 'token', 'cancelRequested')
redis.call('PEXPIREAT', record, expiresAt)
if fields[5] then redis.call('PEXPIREAT', fields[5], expiresAt) end
if apart then redis.call('PEXPIREAT', ARGV[9], expiresAt) end
if ARGV[11] ~= '' then redis.call('HSET', record, 'outcomeParts', ARGV[11]) end
later('ZREM', base .. INFLIGHT, callId)
if ARGV[3] == 'failed' and isUnknown(ARGV[4]) then redis.call('ZADD', base .. IN_DOUBT, expiresAt, callId) end
if ARGV[12] ~= '' then
  local epoch, size, windowMs, name = unpack(parts(ARGV[12], '^(%S+) (%S+) (%S+) (.*)$'))
  addSample(KEYS[2] .. CIRCUITS, KEYS[2] .. WINDOWS .. name, name, epoch, '1', size, windowMs, now)
end
if ARGV[13] ~= '' then refillRetries(KEYS[2] .. RETRIES, ARGV[13]) end
local told = not apart and #ARGV[4] <= tonumber(MAX_EVENT_OUTCOME_BYTES) and ARGV[4] or nil
notify(fields[3], base .. INBOXES, settledEvent(callId, ARGV[3], ARGV[5], told, now, ARGV[10] ~= '' and ARGV[10] or nil))
return {'settled', now}
