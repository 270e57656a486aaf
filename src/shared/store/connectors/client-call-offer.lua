-- Offers an attempt of a call to the clients of its tool. If a client runs the call for an earlier attempt, or has answered it, that
-- run is adopted: only the worker that waited for it died.
--
-- KEYS  1 call  2 waiting calls of the tool  3 clients of the tool
-- ARGV  1 call ID  2 fence  3 tool  4 request, signed  5 '1' to adopt a failure, too  6 TTL of the record, ms  7 broadcast channel
-- Returns {code}: offered · adopted · no-client, no client serves the tool
local now = nowMs()
local state, client, ok = unpack(redis.call('HMGET', KEYS[1], 'state', 'client', 'ok'))
if state == 'taken' and tonumber(redis.call('ZSCORE', KEYS[3], client) or 0) > now then return {'adopted'} end
if state == 'answered' and (ok == '1' or ARGV[5] == '1') then return {'adopted'} end
redis.call('LREM', KEYS[2], 0, ARGV[1])
redis.call('DEL', KEYS[1])
if redis.call('ZCOUNT', KEYS[3], '(' .. now, '+inf') == 0 then return {'no-client'} end
redis.call('HSET', KEYS[1], 'state', 'waiting', 'fence', ARGV[2], 'request', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('RPUSH', KEYS[2], ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('PUBLISH', ARGV[7], '{"type":"offered","tool":"' .. ARGV[3] .. '"}')
return {'offered'}
