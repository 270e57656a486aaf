-- Renews the lease of a running attempt, and sends an event (progress) to the producers that wait. The newest events are stored for a
-- while, for followers that subscribe later or again.
--
-- KEYS  1 record  2 stored events of the call, a stream whose IDs are `fence-number`
-- ARGV  1 fence  2 lease, ms  3 key prefix of inboxes  4 event (JSON), '' only renews
-- Returns {code, '1' when cancellation is requested}: renewed · fenced · ended
local MAX_EVENTS, EVENTS_TTL_MS = 200, 900000
local fields = redis.call('HMGET', KEYS[1], 'state', 'fence', 'inboxes', 'cancelRequested')
if fields[1] ~= 'inflight' then return {'ended', '0'} end
if fields[2] ~= ARGV[1] then return {'fenced', '0'} end
redis.call('HSET', KEYS[1], 'lockUntilMs', nowMs() + ARGV[2])
if ARGV[4] ~= '' then
  local number = redis.call('HINCRBY', KEYS[1], 'told', 1)
  -- Events before the first one of this record are those of an earlier call with this ID.
  if number == 1 then redis.call('DEL', KEYS[2]) end
  redis.call('XADD', KEYS[2], 'MAXLEN', MAX_EVENTS, ARGV[1] .. '-' .. number, 'event', ARGV[4])
  redis.call('PEXPIRE', KEYS[2], EVENTS_TTL_MS)
  notify(fields[3], ARGV[3], {ARGV[4]})
end
return {'renewed', fields[4] or '0'}
