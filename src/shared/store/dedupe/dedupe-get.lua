-- Reads a record. In a store of limited size, reading a finished one keeps it from being the next to go.
--
-- KEYS  1 record  2 finished records, by last use
-- ARGV  1 key  2 '1' when the store's size is limited
-- Returns {record (JSON) or nil}
local stored = redis.call('HMGET', KEYS[1], 'record', 'state')
if ARGV[2] == '1' and stored[1] and stored[2] ~= 'inflight' then
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[2], time[1] * 1000000 + time[2], ARGV[1])
end
return {stored[1]}
