-- Makes a call that has failed a dead letter: adds it to the indices of dead letters, with the facts by which it is found.
--
-- KEYS  1 base of the partition's keys
-- ARGV  1 call ID  2 time, ms  3 how long the indices keep it, ms
local base, callId, now, keptMs = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local fields = redis.call('HMGET', base .. ':call:' .. callId, 'request', 'outcome', 'circuit')
local function read(json)
  local ok, value = pcall(cjson.decode, json or '')
  return ok and type(value) == 'table' and value or {}
end
local function member(value, name)
  local found = type(value) == 'table' and value[name]
  return type(found) == 'string' and found or ''
end
-- As `request-text.ts` writes it.
local request = read(fields[1])
if not request[1] then return end
local rest = request[10] or {}
local namespace = rest.namespace or 'tools'
local tenant, all, facts = member(rest.target, 'tenantId'), base .. DEAD_LETTERS, base .. DEAD_LETTER_FACTS
redis.call('HSET', facts, callId, cjson.encode({
  member(read(fields[2]).error, 'code'), namespace .. '.' .. request[1],
  request[6], fields[3] or '', tenant}))
redis.call('PEXPIRE', facts, keptMs)
for _, index in ipairs({all, tenant ~= '' and base .. DEAD_LETTERS_OF .. tenant or nil}) do
  redis.call('ZADD', index, now, callId)
  redis.call('PEXPIRE', index, keptMs)
end
-- The indices forget with the records: each new one removes a few old ones.
for _, old in ipairs(redis.call('ZRANGEBYSCORE', all, '-inf', now - keptMs, 'LIMIT', 0, 16)) do remove_dead_letter({base}, {old}) end
