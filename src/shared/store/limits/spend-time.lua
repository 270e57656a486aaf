-- Adds time to what was spent of budgets. One that is not kept any more is not made anew.
--
-- KEYS  the budgets
-- ARGV  1 milliseconds
-- Returns {now}
for _, budget in ipairs(KEYS) do
  if redis.call('EXISTS', budget) == 1 then redis.call('HINCRBY', budget, 'timeMs', ARGV[1]) end
end
return {nowMs()}
