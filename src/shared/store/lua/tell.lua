-- Passes an event of a running attempt (progress) to the producers that wait, and renews the attempt's lease.
--
-- KEYS  1 record
-- ARGV  1 fence  2 lease, ms  3 key prefix of inboxes  4 event (JSON), '' only renews
-- Returns {code, '1' when cancellation is asked for}: told · fenced · ended
local fields = redis.call('HMGET', KEYS[1], 'state', 'fence', 'inboxes', 'cancelRequested')
if fields[1] ~= 'inflight' then return {'ended', '0'} end
if fields[2] ~= ARGV[1] then return {'fenced', '0'} end
redis.call('HSET', KEYS[1], 'lockUntilMs', nowMs() + ARGV[2])
if ARGV[4] ~= '' then notify(fields[3], ARGV[3], ARGV[4]) end
return {'told', fields[4] or '0'}
