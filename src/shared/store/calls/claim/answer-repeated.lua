-- Answers a claim whose call has a record already.
--
-- KEYS  the table of claim-batch.lua
-- ARGV  the table of claim.lua, after find_call
-- Returns claim's answer, or nil when the call is new or runs again
local claim = ARGV
local callId, record, mode, now = claim.callId, claim.record, claim.terms.mode, claim.now
if not record.exists then return end
if record.paramsDigest ~= claim.paramsDigest then return {'conflict', callId, now} end
local mergedRequest = callId ~= claim.ownId and record.request
if record.state == 'inflight' then
  -- The script, or the request, was sent again because its first answer was lost: this is the caller's own call.
  local isOwn = record.request == claim.request
  if isOwn or mode == 'enforced' then redis.call('HSET', claim.key, 'inboxes', withInbox(record.inboxes, claim.inbox)) end
  if isOwn then return {'claimed', callId, now, false, 0, record.generation ~= claim.generation and '1' or '0'} end
  return {'inflight', callId, now, record.phase, record.createdAtMs, mergedRequest}
end
local mayRetry = record.state == 'failed' and record.retriable and mode == 'bestEffort'
if not mayRetry then
  return {record.state, callId, now, record.outcome, record.updatedAtMs, record.signature or '', record.outcomeAt, record.outcomeParts,
    mergedRequest}
end
-- The call runs again: under its own ID if it was merged. Its fence goes on counting, so that late attempts stay refused.
claim.callId, claim.key, claim.runsAgain = claim.ownId, KEYS.records .. claim.ownId, true
