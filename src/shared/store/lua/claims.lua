-- Claims calls that were handed in at the same time, each for itself (claim): what goes wrong with one is told for that one.
--
-- KEYS  for each call those of claim
-- ARGV  1 number of calls; then for each: how many arguments claim takes, and these
-- Returns for each what claim returns, or {'error', what went wrong}
local CLAIM_KEYS = 6
local answers, at = {}, 2
for number = 1, tonumber(ARGV[1]) do
  local key, last = 1 + (number - 1) * CLAIM_KEYS, at + tonumber(ARGV[at])
  local ok, answer = pcall(claim, {unpack(KEYS, key, key + CLAIM_KEYS - 1)}, {unpack(ARGV, at + 1, last)})
  answers[number] = ok and answer or {'error', type(answer) == 'table' and answer.err or answer}
  at = last + 1
end
return answers
