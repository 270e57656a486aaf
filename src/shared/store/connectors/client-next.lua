-- Renews a client's lease, returns which of its calls it should stop, and takes its next call.
--
-- A call that the client has taken and does not report as running is returned again, because that reply was lost. Only the newest poll
-- of a client gets calls, so that none goes to a poll whose reply no client reads.
--
-- KEYS  1 client  2 calls that it has taken
-- ARGV  1 client ID  2 prefix of all keys of clients  3 the poll's ID, '' to take nothing  4 '1' for the first try of a poll
--       5 TTL of a tool's set of clients, ms  6… calls that it runs
-- Returns {code, …}:
--   gone        its lease has ended     superseded  a newer poll has begun
--   renewed     leaseMs, calls to stop separated by spaces, then call ID, fence and request (signed) of the next call, if there is one
local now = nowMs()
local names, leaseMs, poll = unpack(redis.call('HMGET', KEYS[1], 'tools', 'leaseMs', 'poll'))
if not names then return {'gone'} end
local tools = {}
for tool in string.gmatch(names, '%S+') do
  tools[#tools + 1] = tool
  local clients = ARGV[2] .. 'tool:' .. tool
  redis.call('ZREMRANGEBYSCORE', clients, '-inf', now)
  redis.call('ZADD', clients, now + leaseMs, ARGV[1])
  redis.call('PEXPIRE', clients, ARGV[5])
end
redis.call('PEXPIRE', KEYS[1], leaseMs)

local function isOwned(callId)
  local state, client = unpack(redis.call('HMGET', ARGV[2] .. 'call:' .. callId, 'state', 'client'))
  return state == 'taken' and client == ARGV[1]
end
local running, ended = {}, {}
for position = 6, #ARGV do
  running[ARGV[position]] = true
  if not isOwned(ARGV[position]) then ended[#ended + 1] = ARGV[position] end
end
local renewed = {'renewed', leaseMs, table.concat(ended, ' ')}
if ARGV[3] == '' then return renewed end
if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 'poll', ARGV[3]) elseif poll ~= ARGV[3] then return {'superseded'} end

local function assign(callId)
  local fence, request = unpack(redis.call('HMGET', ARGV[2] .. 'call:' .. callId, 'fence', 'request'))
  return {'renewed', leaseMs, table.concat(ended, ' '), callId, fence, request}
end
for _, callId in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if not isOwned(callId) then redis.call('SREM', KEYS[2], callId) elseif not running[callId] then return assign(callId) end
end
-- The first tool changes with the time, so that a busy tool does not starve the others.
for offset = 0, #tools - 1 do
  local waiting = ARGV[2] .. 'waiting:' .. tools[(now + offset) % #tools + 1]
  local callId = redis.call('LPOP', waiting)
  while callId do
    local call = ARGV[2] .. 'call:' .. callId
    if redis.call('HGET', call, 'state') == 'waiting' then
      redis.call('HSET', call, 'state', 'taken', 'client', ARGV[1])
      redis.call('SADD', KEYS[2], callId)
      redis.call('PEXPIRE', KEYS[2], ARGV[5])
      return assign(callId)
    end
    callId = redis.call('LPOP', waiting)
  end
end
return renewed
