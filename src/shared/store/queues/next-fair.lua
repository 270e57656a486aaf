-- Takes the next jobs out of the lines. The line with the earliest turn is served until its turn is later than the next line's; each job
-- moves its line's turn by 1 / weight.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 maximum of jobs  2 lines that the worker skips (skippedLines)
-- Returns job IDs
local queue, maxJobs, jobIds = KEYS[1], tonumber(ARGV[1]), {}
local prioritized, order, skipped = queue .. 'prioritized', queue .. 'line-order', ARGV[2]
local isSelective = next(skipped) ~= nil

-- The two lines with the earliest turns, each with its turn.
local function earliest()
  if not isSelective then return unpack(redis.call('ZRANGE', order, 0, 1, 'WITHSCORES')) end
  local eligible, members = {}, redis.call('ZRANGE', order, 0, -1, 'WITHSCORES')
  for index = 1, #members, 2 do
    if not skipped[tonumber(string.match(members[index], '^%d+'))] then
      eligible[#eligible + 1], eligible[#eligible + 2] = members[index], members[index + 1]
    end
  end
  return unpack(eligible, 1, 4)
end

while #jobIds < maxJobs do
  local member, turn, _, nextTurn = earliest()
  -- No fair queue is left, or only jobs with a priority of BullMQ's.
  local number, weight = string.match(member or '0 1', '^(%d+) (%S+)$')
  local share = maxJobs - #jobIds
  if nextTurn then share = math.min(share, math.floor((nextTurn - turn) * weight) + 1) end
  local last = member and (number + 1) * LINE - 1 or isSelective and LINE - 1 or '+inf'
  local taken = redis.call('ZRANGEBYSCORE', prioritized, number * LINE, last, 'LIMIT', 0, share)
  if #taken > 0 then
    redis.call('ZREM', prioritized, unpack(taken))
    for _, jobId in ipairs(taken) do jobIds[#jobIds + 1] = jobId end
    if nextTurn then redis.call('ZINCRBY', order, #taken / weight, member) end
  elseif member then
    -- The line is empty when its turn comes: it leaves the order.
    redis.call('ZREM', order, member)
  else
    break
  end
end
if redis.call('EXISTS', prioritized) == 0 then redis.call('DEL', queue .. 'lines', order, queue .. 'line-sessions', queue .. 'line-needs') end
return jobIds
