-- Takes the next jobs out of their lines. The line whose turn is the earliest is served until it is behind the next one; each job
-- puts its line's next turn off by 1 / weight.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 how many at most  2 lines that are left to others, as linesLeftBy returns them
-- Returns job IDs
local queue, most, jobIds = KEYS[1], tonumber(ARGV[1]), {}
local prioritized, order, left = queue .. 'prioritized', queue .. 'line-order', ARGV[2]
local isSelective = next(left) ~= nil

-- The two lines whose turns are the earliest, each with its turn.
local function earliest()
  if not isSelective then return unpack(redis.call('ZRANGE', order, 0, 1, 'WITHSCORES')) end
  local found, all = {}, redis.call('ZRANGE', order, 0, -1, 'WITHSCORES')
  for at = 1, #all, 2 do
    if not left[tonumber(string.match(all[at], '^%d+'))] then found[#found + 1], found[#found + 2] = all[at], all[at + 1] end
  end
  return unpack(found, 1, 4)
end

while #jobIds < most do
  local member, turn, _, nextTurn = earliest()
  -- No fair queue is left, or only jobs with a priority of BullMQ's.
  local number, weight = string.match(member or '0 1', '^(%d+) (%S+)$')
  local share = most - #jobIds
  if nextTurn then share = math.min(share, math.floor((nextTurn - turn) * weight) + 1) end
  local last = member and (number + 1) * LINE - 1 or isSelective and LINE - 1 or '+inf'
  local taken = redis.call('ZRANGEBYSCORE', prioritized, number * LINE, last, 'LIMIT', 0, share)
  if #taken > 0 then
    redis.call('ZREM', prioritized, unpack(taken))
    for _, jobId in ipairs(taken) do jobIds[#jobIds + 1] = jobId end
    if nextTurn then redis.call('ZINCRBY', order, #taken / weight, member) end
  elseif member then
    -- This queue is empty, and its turn has come: it owes the others nothing.
    redis.call('ZREM', order, member)
  else
    break
  end
end
if redis.call('EXISTS', prioritized) == 0 then redis.call('DEL', queue .. 'lines', order, queue .. 'line-sessions', queue .. 'line-needs') end
return jobIds
