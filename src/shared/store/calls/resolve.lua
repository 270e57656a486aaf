-- Replaces the outcome of a call in doubt by the one that an operator determined.
--
-- KEYS  1 record  2 index of calls in doubt  3 base of the partition's keys
-- ARGV  1 state: done or failed  2 outcome (JSON)  3 time to live, ms  4 the outcome's signature  5 call ID
--       6 token: a script that runs twice, because its first answer was lost, answers the same
--       7 time until the call's key may run again, ms, '' for that of the record
--       8 how long a failed call is a dead letter, ms, '' for never
-- Returns {code, now, …}: resolved · refused state · gone
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'outcome', 'paramsAt', 'endedBy', 'attempts', 'callback')
if not fields[1] then return {'gone', now} end
if fields[4] == ARGV[6] then return {'resolved', now} end
if not isUnresolved(fields[1], fields[2]) then return {'refused', now, fields[1]} end
local expiresAt = text(now + ARGV[3])
redis.call('HSET', KEYS[1], 'state', ARGV[1], 'outcome', ARGV[2], 'outcomeSignature', ARGV[4], 'retriable', '0', 'updatedAtMs', now,
  'endedBy', ARGV[6])
-- Marks its attempts as resolved, in case the call runs again.
if ARGV[1] == 'failed' and fields[5] then
  redis.call('HSET', KEYS[1], 'attempts', (string.gsub(fields[5], '}\n', ',"resolved":true}\n')))
end
if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'freeAtMs', text(now + ARGV[7])) end
nextVersion(KEYS[1])
redis.call('PEXPIREAT', KEYS[1], expiresAt)
if fields[3] then redis.call('PEXPIREAT', fields[3], expiresAt) end
redis.call('ZREM', KEYS[2], ARGV[5])
if ARGV[1] == 'done' then remove_dead_letter({KEYS[3]}, {ARGV[5]}) elseif ARGV[8] ~= '' then add_dead_letter({KEYS[3]}, {ARGV[5], text(now), ARGV[8]}) end
if fields[6] then add_callback({string.sub(KEYS[1], 1, -1 - #RECORDS - #ARGV[5])}, {ARGV[5], ARGV[1], ARGV[2], ARGV[4], false}) end
return {'resolved', now}
