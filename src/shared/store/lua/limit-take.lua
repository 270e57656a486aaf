-- Asks for one start under a limit that holds for the whole fleet: at most so many at a time, and so many starts in a window.
-- Who cannot start is told when to ask again. Slots are given in the order in which they were first asked for.
--
-- KEYS  1 holders, by the end of their lease  2 waiters, by the order in which they came  3 starts, by the latest time at which they arrive
--       4 waiters for the rate, by the time that they were told
-- ARGV  1 who asks  2 how many at a time, '0' for any number  3 starts in a window, '0' for any number  4 window, ms
--       5 lease of a slot, ms  6 name of this start  7 how long it may take to arrive, ms
-- Returns {1, 0} or {0, ms}
local FORGOTTEN_MS = 600000
local SHORTEST_MS, LONGEST_MS, EACH_MS = 250, 5000, 20
local now = nowMs()
local holders, waiters, starts, told = unpack(KEYS)
local who, most, rate, window = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

if most > 0 then
  redis.call('ZREMRANGEBYSCORE', holders, '-inf', now)
  if not redis.call('ZSCORE', holders, who) then
    local free = most - redis.call('ZCARD', holders)
    local ahead = redis.call('ZRANK', waiters, who) or redis.call('ZCARD', waiters)
    if ahead >= free then
      if not redis.call('ZSCORE', waiters, who) then
        local last = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')
        redis.call('ZADD', waiters, math.max(now, (tonumber(last[2] or 0)) + 1), who)
      end
      redis.call('PEXPIRE', waiters, FORGOTTEN_MS)
      -- Whoever ends wakes the first that waits; this is for the case that nobody does.
      return {0, math.min(LONGEST_MS, SHORTEST_MS + EACH_MS * ahead)}
    end
    redis.call('ZREM', waiters, who)
  end
end

local waitMs = 0
if rate > 0 then
  redis.call('ZREMRANGEBYSCORE', starts, '-inf', now - window)
  if redis.call('ZCARD', starts) >= rate then
    local oldest = redis.call('ZRANGE', starts, 0, 0, 'WITHSCORES')
    -- One that has not ended yet may end now.
    local soonest = math.max(1, math.min(tonumber(oldest[2]), now) + window - now + 1)
    waitMs = soonest
    if not redis.call('ZSCORE', told, who) then
      -- Spread over the windows to come, so that they do not all ask again together.
      redis.call('ZREMRANGEBYSCORE', told, '-inf', now - FORGOTTEN_MS)
      local last = redis.call('ZREVRANGE', told, 0, 0, 'WITHSCORES')
      local at = math.max(now + soonest, (tonumber(last[2] or 0)) + math.ceil(window / rate))
      redis.call('ZADD', told, at, who)
      redis.call('PEXPIRE', told, FORGOTTEN_MS)
      waitMs = math.ceil(at - now)
    end
  end
end
if most > 0 then
  -- A slot that waits for its time is held a little beyond it.
  redis.call('ZADD', holders, now + (waitMs > 0 and waitMs + 2000 or ARGV[5]), who)
  redis.call('PEXPIRE', holders, math.max(FORGOTTEN_MS, tonumber(ARGV[5])))
end
if waitMs > 0 then return {0, waitMs} end
if rate > 0 then
  redis.call('ZREM', told, who)
  redis.call('ZADD', starts, now + ARGV[7], ARGV[6])
  redis.call('PEXPIRE', starts, window + ARGV[7])
end
return {1, 0}
