-- Gives back what was taken from budgets for a call that does not run.
--
-- KEYS  the budgets
-- ARGV  1 what the call costs
-- Returns {'returned'}
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then
    redis.call('HINCRBYFLOAT', key, 'costUnits', -ARGV[1])
    redis.call('HINCRBY', key, 'calls', -1)
  end
end
return {'returned'}
