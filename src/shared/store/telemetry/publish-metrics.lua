-- Adds what a process has counted to the fleet's totals. Saying the same twice adds nothing: an answer that was lost does no harm.
--
-- KEYS  1 totals of the fleet, by series  2 what this process has said so far, by series
-- ARGV  1 largest number of series  2 how long a silent process is remembered, ms
--       3.. for each series: its name, the name that takes it when there are too many, its value now, its value as last acknowledged
-- Returns {number of series}
local size = redis.call('HLEN', KEYS[1])
for index = 3, #ARGV, 4 do
  local series, value = ARGV[index], ARGV[index + 2]
  local said = redis.call('HGET', KEYS[2], series) or ARGV[index + 3]
  local target = series
  if redis.call('HEXISTS', KEYS[1], series) == 0 then
    if size >= tonumber(ARGV[1]) then target = ARGV[index + 1] else size = size + 1 end
  end
  redis.call('HINCRBYFLOAT', KEYS[1], target, string.format('%.17g', value - said))
  redis.call('HSET', KEYS[2], series, value)
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {size}
