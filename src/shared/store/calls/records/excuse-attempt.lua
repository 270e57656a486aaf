-- Excuses an attempt that its worker ended because Redis did not answer it: the worker lives, so its call crashed nothing. Running again
-- changes nothing.
--
-- KEYS  1 record
-- ARGV  1 fence  2 worker ID
-- Returns 1 when the attempt is excused, 0 when its call has ended, or when the attempt left a record
local state, fence, phase, worker, excused, blamed, attempts =
  unpack(redis.call('HMGET', KEYS[1], 'state', 'fence', 'phase', 'worker', 'excused', 'blamed', 'attempts'))
if state ~= 'inflight' or excused == ARGV[1] then return 0 end
if fence == ARGV[1] then
  if phase ~= 'running' or worker ~= ARGV[2] then return 0 end
else
  -- Another worker has recovered the call meanwhile, and blamed it.
  local lost = '{"fence":' .. ARGV[1] .. ',"worker":' .. cjson.encode(ARGV[2]) .. ','
  if not string.find(attempts or '', lost, 1, true) then return 0 end
  redis.call('HSET', KEYS[1], 'blamed', math.max(0, tonumber(blamed or 0) - 1), 'lostAlone', 0, 'poison', '0')
end
redis.call('HSET', KEYS[1], 'excused', ARGV[1])
return 1
