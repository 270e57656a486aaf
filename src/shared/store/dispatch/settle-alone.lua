-- Settles a call before its job ends, and writes the audit records that wait.
--
-- KEYS  1 key for add_records  2, 3 the keys of settle
-- ARGV  1 texts for add_records  2.. the arguments of settle
-- Returns what settle returns, and the answer of add_records
local answer = settle({KEYS[2], KEYS[3]}, {unpack(ARGV, 2)})
answer[#answer + 1] = add_records(KEYS[1], ARGV[1], MAX_UNSEALED)
return answer
