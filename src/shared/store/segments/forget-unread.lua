-- Forgets the calls of a segment that cannot be read: looks through hashes of moved calls.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 number of the segment  2.. ends of call IDs, each the name of a hash
-- Returns {how many were forgotten}
local forgotten = 0
for at = 2, #ARGV do
  local key = KEYS[1] .. MOVED .. ARGV[at]
  local entries = redis.call('HGETALL', key)
  for entry = 1, #entries, 2 do
    if entries[entry + 1] == ARGV[1] then forgotten = forgotten + redis.call('HDEL', key, entries[entry]) end
  end
end
if forgotten > 0 then redis.call('DECRBY', KEYS[1] .. SEGMENTS .. ':calls', forgotten) end
return {forgotten}
