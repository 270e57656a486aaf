-- Cancels a call that has not started; asks the worker of a running one to stop.
--
-- KEYS  1 record  2 in-flight index
-- ARGV  1 call ID  2 outcome of a call that never ran (JSON)  3 outcome of one that waits for its next attempt (JSON)
--       4 state to end in  5 time to live, ms  6 inbox ID of who waits for the answer  7 key prefix of inboxes  8 news channel
-- Returns {code, now, …}:
--   cancelled  generation: the call ended here and now   requested: its worker has been asked
--   too-late   state: it had ended before                gone: there is no such record
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'phase', 'generation', 'inboxes', 'fence')
if not fields[1] then return {'gone', now} end
if fields[1] ~= 'inflight' then return {'too-late', now, fields[1]} end
if fields[2] == 'running' then
  -- A deadline asks for nothing here, and takes no cancellation back: the worker keeps the time itself.
  if ARGV[4] == 'cancelled' then redis.call('HSET', KEYS[1], 'cancelRequested', '1') end
  redis.call('HSET', KEYS[1], 'inboxes', withInbox(fields[4], ARGV[6]))
  redis.call('PUBLISH', ARGV[8], '{"type":"cancel","callId":"' .. ARGV[1] .. '","because":"' .. ARGV[4] .. '"}')
  return {'requested', now}
end
local outcome = not fields[5] and ARGV[2] or ARGV[3]
redis.call('HSET', KEYS[1], 'state', ARGV[4], 'outcome', outcome, 'retriable', '0', 'updatedAtMs', now, 'expiresAtMs', now + ARGV[5])
redis.call('HDEL', KEYS[1], 'phase', 'inboxes', 'notBeforeMs')
redis.call('HINCRBY', KEYS[1], 'version', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('ZREM', KEYS[2], ARGV[1])
notify(withInbox(fields[4], ARGV[6]), ARGV[7], '{"type":"settled","callId":"' .. ARGV[1] .. '","state":"' .. ARGV[4] .. '","outcome":' .. outcome .. '}')
return {'cancelled', now, fields[3]}
