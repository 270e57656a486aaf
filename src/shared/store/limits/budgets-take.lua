-- Takes a call and its cost from all of its budgets, or from none: where the script that claims it cannot.
--
-- KEYS  the budgets
-- ARGV  1 what the call costs  2.. of each budget: most calls, cost units and time, ms ('' for no bound), how long it is kept, ms, '1' when
--       that is from its first call on
-- Returns {'taken'} · {'spent', budget, unit, spent, ms}, as claim does
for budget, key in ipairs(KEYS) do
  local at = 2 + (budget - 1) * 5
  local unit, used = exceededUnit(key, ARGV[1], {unpack(ARGV, at, at + 2)}, ARGV[at + 3])
  if unit then return {'spent', budget - 1, unit, used, redis.call('PTTL', key)} end
end
for budget, key in ipairs(KEYS) do
  local at = 2 + (budget - 1) * 5
  takeBudget(key, ARGV[1], ARGV[at + 3], ARGV[at + 4])
end
return {'taken'}
