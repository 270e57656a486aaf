-- Refuses a new call that exceeds a limit. Otherwise counts it, and takes it from its budgets.
--
-- KEYS  the table of claim-batch.lua
-- ARGV  the table of claim.lua, which gets `repetitions`, how often the session made this call, 0 without a count
-- Returns claim's answer to a refused call, else nil
local partition, claim = KEYS, ARGV
local terms, callId, now = claim.terms, claim.callId, claim.now
if terms.isPast then return {'past', callId, now} end
if terms.maxInflight then
  local inflight = cardinality(partition.inflight)
  -- Delayed calls do not count before their starts.
  if inflight >= terms.maxInflight then inflight = inflight - countDelayed(partition.inflight) end
  if inflight >= terms.maxInflight then return {'overloaded', callId, now, inflight} end
end
for number, budget in ipairs(claim.budgets) do
  local unit, used = exceededUnit(budget.key, claim.cost, budget.limits, budget.ttlMs)
  if unit then return {'spent', callId, now, number - 1, unit, used, redis.call('PTTL', budget.key)} end
end
if claim.params ~= '' and redis.call('EXISTS', claim.params) == 0 then error('UNKEPT: the large parameters do not exist') end

-- Only calls that would run are counted, not merged duplicates and replays.
claim.repetitions = 0
if claim.countId ~= '' then
  local count = partition.loops .. claim.countId
  local repetitions = redis.call('INCR', count)
  if repetitions == 1 then redis.call('PEXPIRE', count, terms.windowMs) end
  if repetitions >= terms.refuseAt then
    -- The count would last for longer if Redis' clock was set back.
    if redis.call('PTTL', count) > terms.windowMs then redis.call('PEXPIRE', count, terms.windowMs) end
    return {'loop', callId, now, repetitions, redis.call('PTTL', count)}
  end
  claim.repetitions = repetitions
end
for _, budget in ipairs(claim.budgets) do takeBudget(budget.key, claim.cost, budget.ttlMs, budget.window) end
