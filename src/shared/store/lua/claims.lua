-- Claims calls that were handed in at the same time, each for itself (claim): what goes wrong with one is told for that one.
--
-- KEYS  1 as add_records takes it; then for each call those of claim
-- ARGV  1, 2 as add_records takes them  3 number of calls; then for each: how many arguments claim takes, and these
-- Returns for each what claim returns, or {'error', what went wrong}; behind them what add_records returns
local CLAIM_KEYS = 7
local answers, at = {}, 4
for number = 1, tonumber(ARGV[3]) do
  local key, last = 2 + (number - 1) * CLAIM_KEYS, at + tonumber(ARGV[at])
  local ok, answer = pcall(claim, {unpack(KEYS, key, key + CLAIM_KEYS - 1)}, {unpack(ARGV, at + 1, last)})
  answers[number] = ok and answer or {'error', type(answer) == 'table' and answer.err or answer}
  at = last + 1
end
answers[#answers + 1] = add_records(KEYS[1], ARGV[1], ARGV[2])
return answers
