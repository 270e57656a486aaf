-- Stores a client's report about a call that it runs: its progress, or its answer, which is stored once.
--
-- KEYS  1 call  2 calls that the client took
-- ARGV  1 client ID  2 call ID  3 fence  4 'progress' or 'answer'  5 the report  6 '1' for a success  7 TTL of the record, ms
--       8 broadcast channel
-- Returns {code}: stored · again, the call was answered before · late, the client no longer owns the call
local state, client, fence = unpack(redis.call('HMGET', KEYS[1], 'state', 'client', 'fence'))
if client ~= ARGV[1] or fence ~= ARGV[3] then return {'late'} end
if state == 'answered' then return {'again'} end
if state ~= 'taken' then return {'late'} end
redis.call('HSET', KEYS[1], ARGV[4], ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[7])
if ARGV[4] == 'answer' then
  redis.call('HSET', KEYS[1], 'state', 'answered', 'ok', ARGV[6])
  redis.call('SREM', KEYS[2], ARGV[2])
end
redis.call('PUBLISH', ARGV[8], '{"type":"handover","callId":"' .. ARGV[2] .. '"}')
return {'stored'}
