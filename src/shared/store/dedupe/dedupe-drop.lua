-- Drops records, and what the indexes say of them.
--
-- KEYS  1 index of all, by expiry  2 finished records, by last use
-- ARGV  1 key prefix of records  2 '1' drops only what is finished  3.. the records' keys
-- Returns {record (JSON), …}: what was dropped
local dropped = {}
for position = 3, #ARGV do
  local key = ARGV[position]
  local record = ARGV[1] .. key
  local stored = redis.call('HMGET', record, 'record', 'state', 'sessionIndex', 'toolIndex')
  if stored[1] and not (ARGV[2] == '1' and stored[2] == 'inflight') then
    redis.call('DEL', record)
    for _, index in ipairs({KEYS[1], KEYS[2], stored[3], stored[4]}) do redis.call('ZREM', index, key) end
    dropped[#dropped + 1] = stored[1]
  end
end
return dropped
