-- The worker to which a new job can be dispatched: among those that listen, have capacity and meet its needs, the one with the most.
-- Nil while other calls are queued, or the queue is paused or limited.
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 what the call needs
local queue, need = KEYS[1], ARGV[1]

-- A worker that does not listen is removed at the end of the script: after such a write, Redis would accept all others although its memory
-- is full.
local function listens(name)
  if redis.call('PUBSUB', 'NUMSUB', queue .. 'push:' .. name)[2] > 0 then return true end
  deferWrite('ZREM', queue .. 'pushable', name)
  deferWrite('HDEL', queue .. 'pushed', name)
  return false
end

if not idleWorkers then
  idleWorkers = {}
  local settings = redis.call('HMGET', queue .. 'meta', 'paused', 'concurrency', 'max')
  local open = not settings[1] and not settings[2] and not settings[3]
  local isEmpty = redis.call('EXISTS', queue .. 'wait', queue .. 'prioritized') == 0
  local isSelective = next(incompatibleWorkers(queue)) ~= nil or not isEmpty and redis.call('EXISTS', queue .. 'line-needs') == 1
  if open and (isEmpty or isSelective and redis.call('EXISTS', queue .. 'wait') == 0) then
    local workers = redis.call('ZREVRANGEBYSCORE', queue .. 'pushable', '+inf', 1, 'WITHSCORES', 'LIMIT', 0, isSelective and 64 or 8)
    for index = 1, #workers, 2 do
      -- A name is the lease of its locks, the number of its connection and the worker's ID.
      local leaseMs, id = string.match(workers[index], '^(%d+) %d+ (.+)$')
      local worker = {
        queue = queue, name = workers[index], id = id, leaseMs = leaseMs, capacity = tonumber(workers[index + 1]),
        channel = queue .. 'push:' .. workers[index], pushed = 0, lines = {'', text(nowMs())}}
      local isFree = isEmpty or ({queuedJobs(queue, skippedLines(queue, id))})[2] == 0
      if isFree and listens(worker.name) then idleWorkers[#idleWorkers + 1] = worker end
    end
    -- Workers that died with full slots come last in the index: now and then they are checked, too.
    if nowMs() % 64 == 0 then
      for _, name in ipairs(redis.call('ZRANGE', queue .. 'pushable', 0, 3)) do listens(name) end
    end
  end
end
-- Workers of equal capacity alternate.
local freest
for turn = 1, #idleWorkers do
  local worker = idleWorkers[(nowMs() + turn) % #idleWorkers + 1]
  if worker.capacity > 0 and not isIncompatible(queue, worker.id, need) and (not freest or worker.capacity > freest.capacity) then freest = worker end
end
return freest
