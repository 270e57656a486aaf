-- Adds time to what was spent of budgets. One that is not kept any more is not made anew.
--
-- ARGV  1 milliseconds  2.. the budgets' keys
-- Returns {now}
for at = 2, #ARGV do
  if redis.call('EXISTS', ARGV[at]) == 1 then redis.call('HINCRBY', ARGV[at], 'timeMs', ARGV[1]) end
end
return {nowMs()}
