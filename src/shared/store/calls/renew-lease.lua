-- Passes an event of a running attempt (progress) to the producers that wait, and renews the attempt's lease. The newest events
-- are kept for a while, for followers that come later or come back.
--
-- KEYS  1 record  2 kept events of the call, a stream whose IDs are `fence-number`
-- ARGV  1 fence  2 lease, ms  3 key prefix of inboxes  4 event (JSON), '' only renews
-- Returns {code, '1' when cancellation is asked for}: told · fenced · ended
local KEPT_EVENTS, KEPT_MS = 200, 900000
local fields = redis.call('HMGET', KEYS[1], 'state', 'fence', 'inboxes', 'cancelRequested')
if fields[1] ~= 'inflight' then return {'ended', '0'} end
if fields[2] ~= ARGV[1] then return {'fenced', '0'} end
redis.call('HSET', KEYS[1], 'lockUntilMs', nowMs() + ARGV[2])
if ARGV[4] ~= '' then
  local number = redis.call('HINCRBY', KEYS[1], 'told', 1)
  -- Progress before the first report is that of an earlier call of this name.
  if number == 1 then redis.call('DEL', KEYS[2]) end
  redis.call('XADD', KEYS[2], 'MAXLEN', KEPT_EVENTS, ARGV[1] .. '-' .. number, 'event', ARGV[4])
  redis.call('PEXPIRE', KEYS[2], KEPT_MS)
  notify(fields[3], ARGV[3], {ARGV[4]})
end
return {'told', fields[4] or '0'}
