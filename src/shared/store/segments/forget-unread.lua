-- Forgets the calls of segments that cannot be read: looks through hashes of moved calls.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 first character of the hashes' names  2 all characters of call IDs  3.. numbers of the segments
-- Returns {how many were forgotten}
local forgotten, numbers = 0, {}
for at = 3, #ARGV do numbers[ARGV[at]] = true end
local function look(key)
  local entries = redis.call('HGETALL', key)
  for entry = 1, #entries, 2 do
    if numbers[entries[entry + 1]] then forgotten = forgotten + redis.call('HDEL', key, entries[entry]) end
  end
end
for second in string.gmatch(ARGV[2], '.') do
  for third in string.gmatch(ARGV[2], '.') do look(KEYS[1] .. MOVED .. ARGV[1] .. second .. third) end
end
if forgotten > 0 then redis.call('INCRBY', KEYS[1] .. SEGMENTS .. ':calls', -forgotten) end
return {forgotten}
