-- Stores a completion token of a running attempt. Running again, because the first answer was lost, changes nothing.
--
-- KEYS  1 record  2 entry of the token  3 its terms, which tokens of one tool share
-- ARGV  1 call ID  2 fence  3 terms (JSON)  4 name of the terms  5 signature  6 how long both are kept, ms
-- Returns {code}: issued · ended · fenced
local function keep(key)
  if redis.call('PTTL', key) < tonumber(ARGV[6]) then redis.call('PEXPIRE', key, ARGV[6]) end
end

local fields = redis.call('HMGET', KEYS[1], 'state', 'fence')
if fields[1] ~= 'inflight' then return {'ended'} end
if fields[2] ~= ARGV[2] then return {'fenced'} end
redis.call('HSET', KEYS[2], 'call', ARGV[1], 'fence', ARGV[2], 'terms', ARGV[4], 'signature', ARGV[5])
keep(KEYS[2])
redis.call('SET', KEYS[3], ARGV[3], 'NX')
keep(KEYS[3])
return {'issued'}
