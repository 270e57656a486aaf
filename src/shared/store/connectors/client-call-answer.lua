-- A client's word about a call that it runs: its progress, or once, what came of it.
--
-- KEYS  1 call  2 calls that the client took
-- ARGV  1 client ID  2 call ID  3 fence  4 'progress' or 'answer'  5 the word  6 '1' for a success  7 how long it is kept, ms
--       8 broadcast channel
-- Returns {code}: told · again, it was answered before · late, the call is not this client's any more
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
return {'told'}
