-- Takes a call and its cost from all of its budgets, or from none: where the script that claims it cannot.
--
-- KEYS  the budgets
-- ARGV  1 what the call costs  2.. of each budget: most calls, cost units and time, ms ('' for no bound), how long it is kept, ms, '1' when
--       that is from its first call on
-- Returns {'taken'} · {'spent', budget, unit, spent, ms}, as claim does
local cost = ARGV[1]
for budget, key in ipairs(KEYS) do
  local spent, at = redis.call('HMGET', key, 'calls', 'costUnits', 'timeMs'), 1 + (budget - 1) * 5
  for unit = 1, 3 do
    local limit, used = tonumber(ARGV[at + unit]), tonumber(spent[unit] or 0)
    local after = unit == 1 and used + 1 or unit == 2 and used + cost or used
    if limit and (after > limit or (unit == 3 and used >= limit)) then
      return {'spent', budget - 1, unit, tostring(used), redis.call('PTTL', key)}
    end
  end
end
for budget, key in ipairs(KEYS) do
  local at = 1 + (budget - 1) * 5
  redis.call('HINCRBYFLOAT', key, 'costUnits', cost)
  local calls = redis.call('HINCRBY', key, 'calls', 1)
  if calls == 1 or ARGV[at + 5] == '0' then redis.call('PEXPIRE', key, ARGV[at + 4]) end
end
return {'taken'}
