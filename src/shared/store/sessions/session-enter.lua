-- Enters a session whose record is there where it is looked for, and drops some of those that are gone. Chance says which are looked
-- at: those that live for long hide none of the others.
--
-- KEYS  the lists: sorted sets of sessions, by when they were opened; the last ones may be sets of those below one
-- ARGV  1 session  2 when it was opened, ms  3 how long a list is kept, ms  4 how many of the lists are sorted
--       5 how the keys of records begin
-- Returns {}
local LOOKS = 4
for at, list in ipairs(KEYS) do
  local isSorted = at <= tonumber(ARGV[4])
  if isSorted then redis.call('ZADD', list, ARGV[2], ARGV[1]) else redis.call('SADD', list, ARGV[1]) end
  -- Delayed calls may keep a list for longer.
  if redis.call('PTTL', list) < tonumber(ARGV[3]) then redis.call('PEXPIRE', list, ARGV[3]) end
  for _, member in ipairs(redis.call(isSorted and 'ZRANDMEMBER' or 'SRANDMEMBER', list, LOOKS)) do
    if redis.call('EXISTS', ARGV[5] .. member) == 0 then redis.call(isSorted and 'ZREM' or 'SREM', list, member) end
  end
end
return {}
