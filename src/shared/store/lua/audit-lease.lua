-- Takes or renews the lease of the one who seals the trail, and hands out what is to be sealed.
--
-- KEYS  1 lease  2 head  3 records that wait
-- ARGV  1 who asks  2 lease, ms  3 how much text at most, bytes, by an entry or a few  4 ID of a trail, when there is none
--       yet
-- Returns {trail, seq, seal, {{entry ID, {field, value, …}}, …}, '1' when there may be more}; nothing when another one has the lease
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if redis.call('EXISTS', KEYS[2]) == 0 then
  redis.call('HSET', KEYS[2], 'trail', ARGV[4], 'seq', '0', 'seal', ARGV[4])
end
local head = redis.call('HMGET', KEYS[2], 'trail', 'seq', 'seal')
-- Entries hold one record or some hundred: they are read a few at a time. Each is named when it is taken out again.
local FEW, MOST = 16, 256
local entries, bytes, more = {}, 0, true
while more and bytes < tonumber(ARGV[3]) and #entries < MOST do
  local last = entries[#entries]
  local found = redis.call('XRANGE', KEYS[3], last and '(' .. last[1] or '-', '+', 'COUNT', FEW)
  for _, entry in ipairs(found) do
    entries[#entries + 1] = entry
    bytes = bytes + #entry[2][2]
  end
  more = #found == FEW
end
return {head[1], head[2], head[3], entries, more and '1' or '0'}
