-- Replaces the outcome of a call in doubt by the one that an operator determined.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 token: a script that runs twice, because its first answer was lost, answers the same
--       3 state: done or failed  4.. outcome and further arguments of end_call
-- Returns {code, now, …}: resolved · refused state · gone
local record, now = KEYS[1] .. RECORDS .. ARGV[1], nowMs()
local state, outcome, endedBy, attempts = unpack(redis.call('HMGET', record, 'state', 'outcome', 'endedBy', 'attempts'))
if not state then return {'gone', now} end
if endedBy == ARGV[2] then return {'resolved', now} end
if not isUnresolved(state, outcome) then return {'refused', now, state} end
redis.call('HSET', record, 'endedBy', ARGV[2])
-- Marks its attempts as resolved, in case the call runs again.
if ARGV[3] == 'failed' and attempts then
  redis.call('HSET', record, 'attempts', (string.gsub(attempts, '}\n', ',"resolved":true}\n')))
end
if ARGV[3] == 'done' then remove_dead_letter(KEYS, {ARGV[1]}) end
end_call(KEYS, {ARGV[1], unpack(ARGV, 3)})
return {'resolved', now}
