-- Ends a start under a limit: it has arrived by now, or was not used. Grants its slot, and what was not used, to the first waiters
-- (limit_grant).
--
-- KEYS  1 holders  2 waiters  3 starts  4 waiters for the rate  5 calls that were promoted for a slot
-- ARGV  1 job ID of the holder  2 how many at a time, '0' for any number
--       3 how long a slot, or a start, is reserved for a promoted call, ms
--       4 name of the start  5 '1' when it was not used  6 how long the slot is kept for the same job, ms, '0' to release it
--       7 starts in a window, '0' for any number  8 window, ms
--       9 until when the job held the slot: a later start of the same job may hold it by now; '' for any
-- Returns the names of the jobs to promote, and whether there are any
local promoted = {}
local function grant(most, ...)
  for _, name in ipairs(limit_grant({...}, {most, ARGV[3]})) do promoted[#promoted + 1] = name end
end

if ARGV[5] == '1' then
  redis.call('ZREM', KEYS[3], ARGV[4], ARGV[1])
  redis.call('ZREM', KEYS[4], ARGV[1])
  if ARGV[7] ~= '0' then grant(ARGV[7], KEYS[3], KEYS[4]) end
else
  redis.call('ZADD', KEYS[3], 'XX', 'LT', nowMs() + ARGV[8], ARGV[4])
end
local holds = ARGV[2] ~= '0' and (ARGV[9] == '' or redis.call('ZSCORE', KEYS[1], ARGV[1]) == ARGV[9])
if holds and ARGV[6] ~= '0' then
  redis.call('ZADD', KEYS[1], 'XX', nowMs() + ARGV[6], ARGV[1])
elseif holds then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[5], ARGV[1])
  grant(ARGV[2], KEYS[1], KEYS[2], KEYS[5])
end
return promoted, #promoted > 0
