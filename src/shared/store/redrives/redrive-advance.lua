-- Writes what became of a batch of a redrive, once, and goes on to the next one. Only the newest fence may.
--
-- KEYS  1 the redrive  2 its calls  3 redrives that run  4 its skipped calls
-- ARGV  1 ID  2 fence  3 position of the batch  4 number of calls that were started  5 lease, ms  6 how long skipped calls are kept, ms
--       7.. skipped calls, each as JSON
-- Returns {code, now}: running · done (it was the last one) · stopped · fenced
local now = nowMs()
local state, fence, position, batches = unpack(redis.call('HMGET', KEYS[1], 'state', 'fence', 'position', 'batches'))
if fence ~= ARGV[2] then return {'fenced', now} end
-- The first answer was lost on the way and the script came again.
if position == ARGV[3] then
  redis.call('HINCRBY', KEYS[1], 'started', ARGV[4])
  redis.call('HINCRBY', KEYS[1], 'skipped', #ARGV - 6)
  position = text(position + 1)
  redis.call('HSET', KEYS[1], 'position', position, 'updatedAtMs', text(now), 'leaseUntilMs', text(now + ARGV[5]))
  if ARGV[7] then
    redis.call('RPUSH', KEYS[4], unpack(ARGV, 7))
    redis.call('PEXPIRE', KEYS[4], ARGV[6])
  end
end
if state == 'running' and position == batches then
  state = 'done'
  redis.call('HSET', KEYS[1], 'state', state)
end
if state ~= 'running' then
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('UNLINK', KEYS[2])
end
return {state, now}
