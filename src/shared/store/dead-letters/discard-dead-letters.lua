-- Discards dead letters: they leave the indices, and their records stay. One that is in doubt stays, and one that no longer failed.
--
-- KEYS  1 base of the partition's keys
-- ARGV  call IDs
-- Returns for each: discarded · unresolved · none (it is no dead letter)
local codes = {}
for number, callId in ipairs(ARGV) do
  local state, outcome = unpack(redis.call('HMGET', KEYS[1] .. ':call:' .. callId, 'state', 'outcome'))
  if isUnresolved(state, outcome) then
    codes[number] = redis.call('ZSCORE', KEYS[1] .. DEAD_LETTERS, callId) and 'unresolved' or 'none'
  else
    codes[number] = remove_dead_letter(KEYS, {callId}) and 'discarded' or 'none'
  end
end
return codes
