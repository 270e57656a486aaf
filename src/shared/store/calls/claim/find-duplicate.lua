-- Finds the call into which a new one would have been merged, in shadow mode, and remembers the new one when there is none.
--
-- KEYS  the table of claim-batch.lua
-- ARGV  the table of claim.lua
-- Returns the state of that call, 'conflict' where its parameters differ, or false
local partition, claim = KEYS, ARGV
local kind = claim.terms.slot
if kind ~= 'shadow' and kind ~= 'shadow-inflight' then return false end
local first = redis.call('GET', claim.slot)
local fields = first and redis.call('HMGET', partition.records .. first, 'state', 'paramsDigest', 'freeAtMs', 'ended') or {}
local digest = fields[4] and endedFields(fields[4]).paramsDigest or fields[2]
local duplicate = not isFree(fields[1], fields[3], claim.now) and fields[1]
-- A moved call succeeded. Its parameters are in its segment, and are taken as equal.
if first and not fields[1] and segment_of({partition.base}, {first}) then duplicate, digest = 'done', claim.paramsDigest end
if kind == 'shadow-inflight' and duplicate ~= 'inflight' then duplicate = false end
if not duplicate then redis.call('SET', claim.slot, claim.callId, 'PX', partition.retentionMs) end
if duplicate and digest ~= claim.paramsDigest then return 'conflict' end
return duplicate or false
