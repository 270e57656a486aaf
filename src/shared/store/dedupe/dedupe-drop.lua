-- Drops a record, and what the indexes say of it.
--
-- KEYS  1 record  2 index of all, by expiry  3 finished records, by last use
-- ARGV  1 the record's key  2 '1' drops only what is finished
-- Returns {record (JSON)}: what was dropped, or nothing
local record, state = unpack(redis.call('HMGET', KEYS[1], 'record', 'state'))
if not record or (ARGV[2] == '1' and state == 'inflight') then return {} end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
return {record}
