-- Reads the outcomes of calls of one partition that have probably ended. Only audit records are written.
--
-- KEYS  1 key for add_records  2 base of the partition's keys
-- ARGV  1 texts for add_records
--       then for each call: its ID, its parameter digest, '1' when a retriable failure may run again
-- Returns for each {state, ms since its end, outcome, signature, key of a large outcome, its reference}, without what it does not have at
-- the end, or false when only a claim can decide; then the answer of add_records
local now, answers = nowMs(), {}
for index = 2, #ARGV, 3 do
  local state, digest, retriable, outcome, settledAt, signature, outcomeAt, parts, freeAt, packed = unpack(redis.call('HMGET',
    KEYS[2] .. RECORDS .. ARGV[index], 'state', 'paramsDigest', 'retriable', 'outcome', 'updatedAtMs', 'outcomeSignature', 'outcomeAt', 'outcomeParts', 'freeAtMs',
    'ended'))
  if packed then
    local fields = endedFields(packed)
    digest, settledAt = fields.paramsDigest, fields.updatedAtMs
  end
  local ended = state and state ~= 'inflight' and digest == ARGV[index + 1] and not (state == 'failed' and retriable == '1' and ARGV[index + 2] == '1')
    and not isFree(state, freeAt, now)
  local ageMs = now - (tonumber(settledAt or '') or now)
  -- Each value of an answer costs its reader time.
  if not ended then answers[#answers + 1] = false
  elseif outcomeAt then answers[#answers + 1] = {state, ageMs, outcome, signature or '', outcomeAt, parts}
  else answers[#answers + 1] = {state, ageMs, outcome, signature or nil} end
end
answers[#answers + 1] = add_records(KEYS[1], ARGV[1], MAX_UNSEALED)
return answers
