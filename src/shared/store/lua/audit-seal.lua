-- Appends a block of sealed records to the trail, in place of those that waited. Only the holder of the lease may, and only behind
-- the head that the seals continue: of two who believe to be the one, at most one writes.
--
-- KEYS  1 lease  2 head  3 records that wait  4 the trail  5 positions of the sinks
-- ARGV  1 who writes  2 trail  3 number of the head  4 how many records are kept here  5 how many at most, while a sink is behind
--       6 number of the last record  7 its seal  8 the records  9.. IDs of the waiting entries that these replace
-- Returns {'sealed'} or {'lost'}
local head = redis.call('HMGET', KEYS[2], 'trail', 'seq')
if redis.call('GET', KEYS[1]) ~= ARGV[1] or head[1] ~= ARGV[2] or head[2] ~= ARGV[3] then return {'lost'} end
local seq = tonumber(ARGV[6])
redis.call('XADD', KEYS[4], ARGV[6] .. '-0', 'first', string.format('%.0f', ARGV[3] + 1), 'records', ARGV[8])
redis.call('XDEL', KEYS[3], unpack(ARGV, 9))
redis.call('HSET', KEYS[2], 'seq', ARGV[6], 'seal', ARGV[7])
-- What no sink has yet is kept longer, but not for ever.
local first = seq - tonumber(ARGV[4]) + 1
local positions = redis.call('HVALS', KEYS[5])
for _, position in ipairs(positions) do
  local trail, written = string.match(position, '^(%S+) (%d+)$')
  if trail == ARGV[2] then first = math.min(first, tonumber(written) + 1) end
end
first = math.max(first, seq - tonumber(ARGV[5]) + 1)
if first > 1 then redis.call('XTRIM', KEYS[4], 'MINID', '~', string.format('%.0f-0', first)) end
return {'sealed'}
