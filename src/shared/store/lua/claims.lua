-- Claims calls of one place that were handed in at the same time, each for itself (claim): what goes wrong with one is told for that one.
--
-- KEYS  1 as add_records takes it  2 in-flight index  3 index of all calls  4 circuits
-- ARGV  1, 2 as add_records takes them  3 number of calls  4 index retention, ms
--       5 to 11 key prefixes: of records, merge slots, indices of a session's calls, counts of equal calls, approvals, how many calls
--         of each tool there are, and the queue
--       12, 13 options of a job (JSON) that is kept after its end, and of any other  14 how many of a second's jobs are kept
--       15 largest length of the event stream
--       then for each call: how many arguments claim takes, and these
-- Returns for each what claim returns, or {'error', what went wrong}; behind them what add_records returns
-- Whether one more job of this second may be kept, whoever handed it in.
local keptKey, kept, keptBefore = ARGV[11] .. 'kept', nil, nil
local function keepsOne()
  if not kept then
    keptBefore = tonumber(redis.call('GET', keptKey) or 0)
    kept = keptBefore
  end
  if kept >= tonumber(ARGV[14]) then return false end
  kept = kept + 1
  return true
end
local keys = {
  KEYS[2], KEYS[3], KEYS[4],
  place = {
    retentionMs = ARGV[4], records = ARGV[5], merges = ARGV[6], sessions = ARGV[7], loops = ARGV[8], approvals = ARGV[9],
    sizes = ARGV[10], queue = ARGV[11], keptJob = ARGV[12], otherJob = ARGV[13], keptEvents = ARGV[15], keepsOne = keepsOne}}
local answers, at = {}, 16
for number = 1, tonumber(ARGV[3]) do
  local last = at + tonumber(ARGV[at])
  local ok, answer = pcall(claim, keys, {unpack(ARGV, at + 1, last)})
  answers[number] = ok and answer or {'error', type(answer) == 'table' and answer.err or answer}
  at = last + 1
end
if kept and kept > keptBefore and redis.call('INCRBY', keptKey, kept - keptBefore) == kept - keptBefore then
  redis.call('PEXPIRE', keptKey, 1000)
end
answers[#answers + 1] = add_records(KEYS[1], ARGV[1], ARGV[2])
return answers
