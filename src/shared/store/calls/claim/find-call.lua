-- Finds the record of the claimed call, or of the call into which it was or is now merged.
--
-- KEYS  the table of claim-batch.lua
-- ARGV  the table of claim.lua: `callId`, `key` and `record` become those of the call that was found
-- Returns claim's answer where that is in a segment, else nil
local partition, claim = KEYS, ARGV
local mode, ownKey, now = claim.terms.mode, claim.key, claim.now

local function read(key)
  local fields = redis.call('HMGET', key, 'state', 'paramsDigest', 'phase', 'createdAtMs', 'outcome', 'updatedAtMs', 'retriable', 'inboxes', 'sameAs', 'request',
    'outcomeSignature', 'fence', 'outcomeAt', 'outcomeParts', 'generation', 'freeAtMs', 'ended', 'keptUntilMs')
  local ended = fields[17] and endedFields(fields[17]) or {}
  return {
    exists = fields[1] or fields[9], state = fields[1], paramsDigest = fields[2] or ended.paramsDigest, phase = fields[3],
    createdAtMs = fields[4], outcome = fields[5], updatedAtMs = fields[6] or ended.updatedAtMs, retriable = fields[7] == '1',
    inboxes = fields[8], sameAs = fields[9], request = fields[10], signature = fields[11], fence = fields[12] or ended.fence,
    outcomeAt = fields[13], outcomeParts = fields[14], generation = fields[15], free = isFree(fields[1], fields[16], now),
    keptUntilMs = fields[18],
  }
end

local function follow(leaderId, leader)
  claim.callId, claim.key, claim.record = leaderId, partition.records .. leaderId, leader
end

local mayExist = partition.mayExist or partition.seen[claim.ownId]
partition.seen[claim.ownId] = true
local record = mayExist and read(ownKey) or {}
claim.record = record
if mayExist and not record.exists and segment_of({partition.base}, {claim.ownId}) then return {'moved', claim.ownId, now} end
-- The key of a failed call is free again. Its record stays until the call runs again.
if record.free then claim.runsAgain, claim.record = true, {fence = record.fence} end
-- This request was merged into another call before, and stays merged.
local leaderId = claim.record.sameAs
if leaderId then
  local leader = read(partition.records .. leaderId)
  if leader.exists and not leader.free then
    follow(leaderId, leader)
    -- This record must not expire before the leader's, which has no expiry while it is in flight.
    local ttlMs = leader.keptUntilMs and leader.keptUntilMs - now or redis.call('PTTL', claim.key)
    if ttlMs < 0 then ttlMs = tonumber(partition.retentionMs) end
    if ttlMs > redis.call('PTTL', ownKey) then redis.call('PEXPIRE', ownKey, text(ttlMs)) end
  elseif not leader.exists and segment_of({partition.base}, {leaderId}) then
    return {'moved', leaderId, now}
  else
    claim.isStale, claim.record = true, {fence = record.fence}
  end
end

if claim.record.exists or claim.terms.slot ~= 'merge' then return end
leaderId = redis.call('GET', claim.slot)
local leader = leaderId and read(partition.records .. leaderId) or {}
if leader.state ~= 'inflight' then return end
if mode == 'enforced' then
  if claim.runsAgain then
    redis.call('DEL', ownKey)
    remove_dead_letter({partition.base}, {claim.ownId})
  end
  redis.call('HSET', ownKey, 'sameAs', leaderId, 'sameRequest', claim.naming)
  -- As long as the leader may be in flight, and its record lives after that.
  redis.call('PEXPIRE', ownKey, text(partition.retentionMs + math.max(0, redis.call('PTTL', claim.slot))))
end
follow(leaderId, leader)
