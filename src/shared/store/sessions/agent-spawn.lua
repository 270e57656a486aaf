-- Makes the record of an agent and puts its task into its mailbox.
--
-- KEYS  1 record  2 mailbox  3 agents of the session that are not closed, or whose end was not read yet
-- ARGV  1 agent  2 its session's parent  3 how many there may be  4 task, signed  5 time to live, ms  6 broadcast channel  7 broadcast (JSON)
--       8 how the keys of records begin
-- Returns {code}: spawned · exists · full
if redis.call('EXISTS', KEYS[1]) == 1 then return {'exists'} end
if redis.call('SCARD', KEYS[3]) >= tonumber(ARGV[3]) then
  local open = 0
  for _, agent in ipairs(redis.call('SMEMBERS', KEYS[3])) do
    local state = redis.call('HGET', ARGV[8] .. agent, 'state')
    if state and state ~= 'closed' then open = open + 1 end
  end
  if open >= tonumber(ARGV[3]) then return {'full'} end
end
redis.call('HSET', KEYS[1], 'parent', ARGV[2], 'state', 'queued', 'turn', 1)
redis.call('PEXPIRE', KEYS[1], ARGV[5])
redis.call('RPUSH', KEYS[2], '1 ' .. ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('SADD', KEYS[3], ARGV[1])
redis.call('PEXPIRE', KEYS[3], ARGV[5])
redis.call('PUBLISH', ARGV[6], ARGV[7])
return {'spawned'}
