-- Claims calls of one partition that were submitted together, one by one (claim): an error affects only its call.
--
-- KEYS  1 key for add_records  2, 3 bases of keys: of the partition, and of its home partition  4 key prefix of the queue
-- ARGV  1 texts for add_records  2 number of calls  3 index retention, ms
--       then for each call: the number of arguments of claim, and these
-- Returns the answer of claim for each call, or {'error', message}; then the answer of add_records
local base, queue = KEYS[2], KEYS[4]

-- Whether one more finished job of this second may be kept. Counts it.
local keptKey, kept, keptBefore = queue .. 'kept', nil, nil
local function mayKeepJob()
  if not kept then
    keptBefore = tonumber(redis.call('GET', keptKey) or 0)
    kept = keptBefore
  end
  if kept >= tonumber(KEPT_PER_SECOND) then return false end
  kept = kept + 1
  return true
end

-- Prunes each index once in a script. One script in sixteen does so, and removes twice what sixteen like it add.
local pruned = {}
local function prune(index)
  if pruned[index] then return end
  pruned[index] = true
  prune_index({index, base}, {nowMs() - ARGV[3], math.max(256, 32 * ARGV[2])})
end

local partition = {
  base = base, retentionMs = ARGV[3], queue = queue, records = base .. RECORDS, inflight = base .. INFLIGHT, calls = base .. CALLS, merges = base .. MERGES,
  sessions = base .. SESSIONS, loops = base .. LOOPS, sizes = base .. SIZES, circuits = KEYS[3] .. CIRCUITS,
  mayKeepJob = mayKeepJob, prune = prune, seen = {}}
-- Usually none of the calls has a record, and no call was moved.
local count, index, keys = tonumber(ARGV[2]), 4, {base .. SEGMENTS}
for number = 1, count do
  keys[number + 1] = partition.records .. ARGV[index + 1]
  index = index + ARGV[index] + 1
end
partition.mayExist = redis.call('EXISTS', unpack(keys)) > 0
local answers = {}
index = 4
for number = 1, count do
  local last = index + ARGV[index]
  local ok, answer = pcall(claim, partition, {unpack(ARGV, index + 1, last)})
  answers[number] = ok and answer or {'error', type(answer) == 'table' and answer.err or answer}
  index = last + 1
end
if kept and kept > keptBefore and redis.call('INCRBY', keptKey, text(kept - keptBefore)) == kept - keptBefore then
  redis.call('PEXPIRE', keptKey, 1000)
end
answers[#answers + 1] = add_records(KEYS[1], ARGV[1], MAX_UNSEALED)
return answers
