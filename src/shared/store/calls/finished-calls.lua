-- Reads the outcomes of calls of one partition that have most likely ended. Only audit records are written.
--
-- KEYS  1 as add_records takes it  2 base of the partition's keys
-- ARGV  1 as add_records takes it
--       then for each call: its ID, its parameter digest, '1' when a failure that may be retried is not its end
-- Returns for each {state, now, outcome, settledAt, signature, where a large outcome is, its reference}, or false where only a claim can
-- tell; behind them what add_records returns
local now, answers = nowMs(), {}
for at = 2, #ARGV, 3 do
  local state, digest, retriable, outcome, settledAt, signature, outcomeAt, parts, freeAt, packed = unpack(redis.call('HMGET',
    KEYS[2] .. RECORDS .. ARGV[at], 'state', 'paramsDigest', 'retriable', 'outcome', 'updatedAtMs', 'outcomeSignature', 'outcomeAt', 'outcomeParts', 'freeAtMs',
    'ended'))
  if packed then
    local fields = endedFields(packed)
    digest, settledAt = fields.paramsDigest, fields.updatedAtMs
  end
  local ended = state and state ~= 'inflight' and digest == ARGV[at + 1] and not (state == 'failed' and retriable == '1' and ARGV[at + 2] == '1')
    and not isFree(state, freeAt, now)
  answers[#answers + 1] = ended and {state, now, outcome, settledAt, signature or '', outcomeAt, parts} or false
end
answers[#answers + 1] = add_records(KEYS[1], ARGV[1], MAX_UNSEALED)
return answers
