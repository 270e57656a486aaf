-- Forgets the calls of a segment that cannot be read: looks through hashes of moved calls.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 number of the segment  2 first character of the hashes' names  3 all characters of call IDs
-- Returns {how many were forgotten}
local forgotten = 0
local function look(key)
  local entries = redis.call('HGETALL', key)
  for entry = 1, #entries, 2 do
    if entries[entry + 1] == ARGV[1] then forgotten = forgotten + redis.call('HDEL', key, entries[entry]) end
  end
end
for second in string.gmatch(ARGV[3], '.') do
  for third in string.gmatch(ARGV[3], '.') do look(KEYS[1] .. MOVED .. ARGV[2] .. second .. third) end
end
if forgotten > 0 then redis.call('INCRBY', KEYS[1] .. SEGMENTS .. ':calls', -forgotten) end
return {forgotten}
