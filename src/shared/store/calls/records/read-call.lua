-- Reads a call, and adds the reader to those that are notified when it settles: in one step, so that no event is missed.
--
-- KEYS  1 record
-- ARGV  1 inbox ID, '' only reads  2 key prefix of records  3 '1' also notifies when attempts begin
-- Returns {now, field, value, …}; {now} when there is no record
local key = KEYS[1]
local sameAs, sameRequest = unpack(redis.call('HMGET', key, 'sameAs', 'sameRequest'))
if sameAs then key = ARGV[2] .. sameAs end
local fields = redis.call('HGETALL', key)
if #fields > 0 and ARGV[1] ~= '' then
  local state, inboxes = unpack(redis.call('HMGET', key, 'state', 'inboxes'))
  if state == 'inflight' then redis.call('HSET', key, 'inboxes', withInbox(inboxes, ARGV[1])) end
  if state == 'inflight' and ARGV[3] == '1' then redis.call('HSET', key, 'followed', '1') end
end
local ttlMs = #fields > 0 and redis.call('PTTL', key) or -1
if ttlMs >= 0 then
  fields[#fields + 1] = 'expiresAtMs'
  fields[#fields + 1] = text(nowMs() + ttlMs)
end
if sameAs then
  fields[#fields + 1] = 'callId'
  fields[#fields + 1] = sameAs
  fields[#fields + 1] = 'sameRequest'
  fields[#fields + 1] = sameRequest or ''
end
return {nowMs(), unpack(fields)}
