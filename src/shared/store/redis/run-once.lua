-- Runs a script, or returns the answer of its first run. The script may return false after its answer when it wrote nothing: a poll of an idle
-- fleet then stays a read.
--
-- KEYS  those of the script, and one for its answer
-- ARGV  those of the script
-- Returns what the script returns
local stored = table.remove(KEYS)
local before = redis.call('GET', stored)
if before then return cjson.decode(before) end
local answer, hasWritten = script(KEYS, ARGV)
flushWrites()
-- Redis may be too full for the answer of a script that has run.
if hasWritten ~= false then redis.pcall('SET', stored, cjson.encode(answer), 'PX', ANSWER_TTL_MS) end
return answer
