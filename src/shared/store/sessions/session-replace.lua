-- Replaces a session's record, if it is still the one that the writer saw, and broadcasts it in the same step, so that a writer whose
-- answer was lost can try again.
--
-- KEYS  1 session
-- ARGV  1 the record as seen  2 the new one  3 its time to live, ms, '' to leave that  4 broadcast channel  5 broadcast (JSON), '' for none
-- Returns {1}, or {0} when another one stands there
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {0} end
if ARGV[3] == '' then
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
if ARGV[5] ~= '' then redis.call('PUBLISH', ARGV[4], ARGV[5]) end
return {1}
