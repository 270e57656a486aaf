-- Claims calls of one partition that were submitted at the same time, each by itself (claim): an error is returned for its call alone.
--
-- KEYS  1 as add_records takes it  2, 3 bases of keys: of the partition, and of what a tier's partitions share  4 key prefix of the queue
-- ARGV  1 as add_records takes it  2 number of calls  3 index retention, ms
--       then for each call: how many arguments claim takes, and these
-- Returns for each what claim returns, or {'error', what went wrong}; behind them what add_records returns
local base, queue = KEYS[2], KEYS[4]

-- Whether one more job of this second may be kept.
local keptKey, kept, keptBefore = queue .. 'kept', nil, nil
local function keepsOne()
  if not kept then
    keptBefore = tonumber(redis.call('GET', keptKey) or 0)
    kept = keptBefore
  end
  if kept >= tonumber(KEPT_PER_SECOND) then return false end
  kept = kept + 1
  return true
end

-- Once in a script for each index.
local pruned = {}
local function prune(index)
  if pruned[index] then return end
  pruned[index] = true
  prune_index({index, base .. RECORDS, base}, {nowMs() - ARGV[3], 256})
end

local partition = {
  base = base, retentionMs = ARGV[3], queue = queue, records = base .. RECORDS, inflight = base .. INFLIGHT, calls = base .. CALLS, merges = base .. MERGES,
  sessions = base .. SESSIONS, loops = base .. LOOPS, approvals = base .. APPROVALS, sizes = base .. SIZES, circuits = KEYS[3] .. CIRCUITS,
  segments = base .. SEGMENTS, keepsOne = keepsOne, prune = prune}
local answers, at = {}, 4
for number = 1, tonumber(ARGV[2]) do
  local last = at + tonumber(ARGV[at])
  local ok, answer = pcall(claim, partition, {unpack(ARGV, at + 1, last)})
  answers[number] = ok and answer or {'error', type(answer) == 'table' and answer.err or answer}
  at = last + 1
end
if kept and kept > keptBefore and redis.call('INCRBY', keptKey, text(kept - keptBefore)) == kept - keptBefore then
  redis.call('PEXPIRE', keptKey, 1000)
end
answers[#answers + 1] = add_records(KEYS[1], ARGV[1], MAX_UNSEALED)
return answers
