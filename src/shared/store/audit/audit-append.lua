-- Appends a block of chained records to the trail, removes the waiting ones and renews the lease. Only the lease's holder may, and only
-- behind the head that the block continues: of two processes that assume the lease, at most one writes.
--
-- KEYS  1 lease  2 head  3 waiting records  4 the trail  5 positions of the sinks
-- ARGV  1 the writer  2 lease, ms  3 trail, 4 number and 5 signature of the head  6 how many records Redis keeps  7 the same while a sink
--       is behind  8 number of the last record  9 its signature  10 'zstd' for compressed records, or 'records'  11 the records
--       12.. IDs of the waiting entries to remove
-- Returns {'chained'} or {'lost'}
local head = redis.call('HMGET', KEYS[2], 'trail', 'seq', 'seal')
if redis.call('GET', KEYS[1]) ~= ARGV[1] or head[1] ~= ARGV[3] or head[2] ~= ARGV[4] or (head[3] or '') ~= ARGV[5] then return {'lost'} end
local seq = tonumber(ARGV[8])
redis.call('XADD', KEYS[4], ARGV[8] .. '-0', 'first', string.format('%.0f', ARGV[4] + 1), ARGV[10], ARGV[11])
redis.call('XDEL', KEYS[3], unpack(ARGV, 12))
redis.call('HSET', KEYS[2], 'seq', ARGV[8], 'seal', ARGV[9])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
-- Records that a sink has not copied are kept longer, up to a limit.
local first = seq - tonumber(ARGV[6]) + 1
local positions = redis.call('HVALS', KEYS[5])
for _, position in ipairs(positions) do
  local trail, written = string.match(position, '^(%S+) (%d+)$')
  if trail == ARGV[3] then first = math.min(first, tonumber(written) + 1) end
end
first = math.max(first, seq - tonumber(ARGV[7]) + 1)
if first > 1 then redis.call('XTRIM', KEYS[4], 'MINID', '~', string.format('%.0f-0', first)) end
return {'chained'}
