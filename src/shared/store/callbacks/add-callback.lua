-- Stores the callback of a call, in the script that ends the call.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 state of the call  3 outcome (JSON), '' for one that is too large for a callback  4 its signature
--       5 key of an outcome outside its record, or false  6 the reference to an outcome in parts, which is then signed in its place
local base, callId, now = KEYS[1], ARGV[1], nowMs()
-- A malformed request must not stop the end of its call. Its tenth element holds rare fields (`requestText`).
local ok, callback, target = pcall(function()
  local callback = cjson.decode(redis.call('HGET', base .. RECORDS .. callId, 'request'))[10].request.callback
  local target = cjson.decode(string.sub(callback, string.find(callback, '\n', 1, true) + 1, -1))
  return callback, {host = target.host .. '', news = target.news .. ''}
end)
if not ok then return end
local id, host, expiresAt = 'msg_' .. string.gsub(callId, '%.', '_', 1) .. '_' .. text(now), target.host, text(now + CALLBACK_KEPT_MS)
local key, due, hosts = base .. ':callback:' .. id, base .. ':callbacks:due:' .. host, base .. ':callbacks:hosts'
local outcome = ARGV[5] and redis.call('GET', ARGV[5]) or ARGV[3]
redis.call('HSET', key, 'callId', callId, 'target', callback, 'host', host, 'state', 'pending', 'callState', ARGV[2], 'outcome', outcome,
  'parts', ARGV[6] or '', 'signature', ARGV[4], 'settledAtMs', text(now), 'sinceMs', text(now), 'dueAtMs', text(now))
redis.call('PEXPIREAT', key, expiresAt)
redis.call('ZADD', due, text(now), id)
redis.call('ZADD', base .. ':callbacks', text(now), id)
for _, index in ipairs({base .. ':callbacks', base .. ':callbacks:failing'}) do
  redis.call('ZREMRANGEBYSCORE', index, '-inf', text(now - CALLBACK_KEPT_MS))
end
-- A host that fails gets no callback until its pause is over.
if redis.call('HEXISTS', base .. ':callbacks:pauses', host) == 0 then redis.call('ZADD', hosts, text(now), host) end
redis.call('PUBLISH', target.news, '{"type":"callback"}')
