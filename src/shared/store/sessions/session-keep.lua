-- Lets a key live for at least so long. One that has no end keeps that.
--
-- KEYS  1 a session, or a list of sessions
-- ARGV  1 for how long, ms
-- Returns {}
local leftMs = redis.call('PTTL', KEYS[1])
if leftMs >= 0 and leftMs < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return {}
