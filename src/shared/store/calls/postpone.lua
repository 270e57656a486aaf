-- Ends an attempt but not its call: the call waits for its next attempt, or is released without consuming the attempt.
--
-- KEYS  1 record  2 bucket of the tool's retries
-- ARGV  1 fence  2 phase: waiting-retry, queued, or unstarted: queued as if the attempt had not started  3 attempts  4 delay, ms
--       5 key prefix of inboxes  6 event (JSON), '' for none
--       7 floor of the bucket, '' when the next attempt is no retry  8 time to live of the bucket, ms
-- Returns {code, now}: postponed · fenced · ended · cancelled (cancellation is requested: settle instead)
--   exhausted (the bucket is empty: settle instead)
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'fence', 'inboxes', 'cancelRequested', 'phase')
if fields[1] ~= 'inflight' then return {'ended', now} end
if (fields[2] or '0') ~= ARGV[1] then return {'fenced', now} end
if fields[4] == '1' then return {'cancelled', now} end
-- A script that runs twice, because its first answer was lost, takes one token.
if ARGV[7] ~= '' and fields[5] == 'running' and not takeRetry(KEYS[2], ARGV[7], ARGV[8]) then return {'exhausted', now} end
local unstarted = ARGV[2] == 'unstarted'
redis.call('HSET', KEYS[1], 'phase', unstarted and 'queued' or ARGV[2], 'attempts', ARGV[3], 'notBeforeMs', now + ARGV[4], 'updatedAtMs', now)
redis.call('HDEL', KEYS[1], 'lockUntilMs', 'worker', 'token')
if unstarted and ARGV[3] == '' then redis.call('HDEL', KEYS[1], 'startedAtMs', 'firstStartedAtMs') end
-- The worker that recovers the call next counts the loss again.
if ARGV[2] == 'running' then redis.call('HINCRBY', KEYS[1], 'lost', -1) end
if ARGV[6] ~= '' then notify(fields[3], ARGV[5], {ARGV[6]}) end
return {'postponed', now}
