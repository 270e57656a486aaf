-- Asks for one start under a limit that holds for the whole fleet: at most so many at a time, and so many starts in a window.
-- Who cannot start is told when to ask again. Slots are given in the order in which they were first asked for, sessions taking turns.
--
-- KEYS  1 holders, by the end of their lease  2 waiters, by their places  3 starts, by the latest time at which they arrive
--       4 waiters for the rate, by the time that they were told  5 sessions of waiters, by their last places
-- ARGV  1 who asks  2 how many at a time, '0' for any number  3 starts in a window, '0' for any number  4 window, ms
--       5 lease of a slot, ms  6 name of this start  7 how long it may take to arrive, ms  8 how long a slot is kept for whoever
--       was woken, ms  9 session
-- Returns {'granted'}, {'later', ms} until its time comes, or {'waiting', ms, '1' when its turn is near, the names of those to wake}
local FORGOTTEN_MS = 600000
local SHORTEST_MS, LONGEST_MS, EACH_MS = 500, 300000, 50
local now = nowMs()
local holders, waiters, starts, told, places = unpack(KEYS)
local who, most, rate, window, session = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[9]

if most > 0 then
  redis.call('ZREMRANGEBYSCORE', holders, '-inf', now)
  if not redis.call('ZSCORE', holders, who) then
    local free = most - redis.call('ZCARD', holders)
    local ahead = redis.call('ZRANK', waiters, who)
    if (ahead or redis.call('ZCARD', waiters)) >= free then
      if not ahead then
        local first = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')[2]
        redis.call('ZREMRANGEBYSCORE', places, '-inf', first and '(' .. first or '+inf')
        local place = math.max(first and first + 1 or 0, (redis.call('ZSCORE', places, session) or -1) + 1)
        redis.call('ZADD', waiters, place, who)
        redis.call('ZADD', places, place, session)
        ahead = redis.call('ZRANK', waiters, who)
      end
      redis.call('PEXPIRE', waiters, FORGOTTEN_MS)
      redis.call('PEXPIRE', places, FORGOTTEN_MS)
      local woken = limit_grant({holders, waiters}, {most, ARGV[8]})
      -- Whoever ends wakes the first that waits. Who does not end, or does not come when woken, is past its lease then: one after the
      -- other, those that wait look for that.
      local lease = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] - now
      return {'waiting', math.min(LONGEST_MS, math.max(SHORTEST_MS, lease) + EACH_MS * ahead), ahead < most and '1' or '0', woken}
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
if waitMs > 0 then return {'later', waitMs} end
if rate > 0 then
  redis.call('ZREM', told, who)
  redis.call('ZADD', starts, now + ARGV[7], ARGV[6])
  redis.call('PEXPIRE', starts, window + ARGV[7])
end
return {'granted'}
