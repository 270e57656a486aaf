-- Adds a new call to the indexes: of calls in flight, of all calls and the session's, of delayed calls, and of calls that others merge with.
--
-- KEYS  the table of claim-batch.lua
-- ARGV  the table of claim.lua
local partition, claim = KEYS, ARGV
local callId, terms, now, startAt, retentionMs = claim.callId, claim.terms, claim.now, claim.startAt, partition.retentionMs
local MAX_SEARCHED = 4096
-- A delayed call is in flight from its start on.
deferWrite('ZADD', partition.inflight, text(startAt or now), callId)
-- Counts the tool's calls, by the part of the retention in which they were claimed. The counts of a part expire.
deferCount(partition.sizes .. text(math.floor(now * 24 / retentionMs)), terms.tool, 2 * retentionMs)
local indexes = {partition.calls, claim.sessionCalls}
for _, index in ipairs(indexes) do
  -- A call that runs again moves to the front. A long index is not searched, and has it twice for a while.
  if claim.runsAgain and redis.call('LLEN', index) <= MAX_SEARCHED then redis.call('LREM', index, 1, callId) end
  deferWrite('LPUSH', index, callId)
end
deferExpire(claim.sessionCalls, retentionMs)
if startAt then
  -- The indexes drop calls by the time of the claim, which is long ago when a delayed call starts.
  local delayed = partition.calls .. ':delayed:' .. terms.session
  redis.call('ZREMRANGEBYSCORE', delayed, '-inf', text(now))
  deferWrite('ZADD', delayed, text(startAt), callId)
  deferExpire(delayed, startAt - now + retentionMs)
end
if terms.slot == 'merge' then
  -- A decision may take longer than an outcome is kept.
  local decidedMs = claim.approval and math.max(0, claim.approval[4] - now) or 0
  redis.call('SET', claim.slot, callId, 'PX', text(retentionMs + decidedMs))
end
-- Pruning on every 16th millisecond keeps the indexes bounded.
if now % 16 == 0 then
  for _, index in ipairs(indexes) do partition.prune(index) end
end
