-- Takes schedules that are due. Each is due again when the lease of its taker is over: the taker writes a time of its own before that.
--
-- KEYS  1 when schedules are due  2 records  3 progress
-- ARGV  1 the lease, ms  2 the most schedules
-- Returns {time now, ms, when the next one is due, ms; false for never, then ID, record and progress of each}, and whether any was taken
local taken = {nowMs(), false}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', nowMs(), 'LIMIT', 0, ARGV[2])) do
  local record, progress = redis.call('HGET', KEYS[2], id), redis.call('HGET', KEYS[3], id)
  if record and progress then
    redis.call('ZADD', KEYS[1], nowMs() + ARGV[1], id)
    taken[#taken + 1], taken[#taken + 2], taken[#taken + 3] = id, record, progress
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
local _, next = unpack(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES'))
taken[2] = next or false
return taken, #taken > 2
