-- Adds time to the spent part of budgets. An expired budget is not created again.
--
-- KEYS  the budgets
-- ARGV  1 milliseconds
-- Returns {now}
for _, budget in ipairs(KEYS) do
  if redis.call('EXISTS', budget) == 1 then redis.call('HINCRBY', budget, 'timeMs', ARGV[1]) end
end
return {nowMs()}
