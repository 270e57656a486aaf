-- Acquires one start under a limit of the whole fleet: at most so many at a time, and so many starts in a window. A call that cannot start
-- learns when to ask again. Slots are granted in the order of the first requests, with sessions in rotation; starts in the order of the
-- times at which they were asked for.
--
-- KEYS  1 holders, by the end of their lease  2 waiters, by position  3 starts, by the latest time until which they count
--       4 waiters for the rate, by the time of their request  5 sessions of waiters, by their last position
--       6 calls that were promoted for a slot, by position
-- ARGV  1 job ID  2 how many at a time, '0' for any number  3 starts in a window, '0' for any number  4 window, ms
--       5 lease of a slot, ms  6 name of this start  7 how long it may take to arrive, ms
--       8 how long a slot, or a start, is reserved for a promoted call, ms  9 session  10 time of its request, ms; '' for now
-- Returns {'granted' · 'later', for a start · 'waiting', for a slot, ms until it asks again, '1' when its slot is near, the names of the
-- jobs to promote, until when the slot is held}
local FORGOTTEN_MS = 600000
local SHORTEST_MS, LONGEST_MS, EACH_MS, LOOK_MS = 500, 300000, 50, 2000
local now = nowMs()
local holders, waiters, starts, asking, sessionPositions, promotedPositions = unpack(KEYS)
local jobId, most, rate, window, session = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[9]

if most > 0 then
  redis.call('ZREMRANGEBYSCORE', holders, '-inf', now)
  if not redis.call('ZSCORE', holders, jobId) then
    local free = most - redis.call('ZCARD', holders)
    local ahead, position = redis.call('ZRANK', waiters, jobId), redis.call('ZSCORE', promotedPositions, jobId)
    -- A promoted call that comes late has lost its slot, but not its position.
    if free < 1 or not position and (ahead or redis.call('ZCARD', waiters)) >= free then
      if position then
        redis.call('ZADD', waiters, position, jobId)
        redis.call('ZREM', promotedPositions, jobId)
        ahead = redis.call('ZRANK', waiters, jobId)
      elseif not ahead then
        local first = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')[2]
        redis.call('ZREMRANGEBYSCORE', sessionPositions, '-inf', first and '(' .. first or '+inf')
        position = math.max(first and first + 1 or 0, (redis.call('ZSCORE', sessionPositions, session) or -1) + 1)
        redis.call('ZADD', waiters, position, jobId)
        redis.call('ZADD', sessionPositions, position, session)
        ahead = redis.call('ZRANK', waiters, jobId)
      end
      redis.call('PEXPIRE', waiters, FORGOTTEN_MS)
      redis.call('PEXPIRE', sessionPositions, FORGOTTEN_MS)
      local promoted = limit_grant({holders, waiters, promotedPositions}, {most, ARGV[8]})
      -- The end of a call promotes the first waiter. A holder that does not end, and a promoted call that does not come, are past their
      -- lease then: the waiters ask again, one after the other.
      local lease = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] - now
      return {'waiting', math.min(LONGEST_MS, math.max(SHORTEST_MS, lease) + EACH_MS * ahead), ahead < most and '1' or '0', promoted}
    end
    redis.call('ZREM', waiters, jobId)
  end
  redis.call('ZREM', promotedPositions, jobId)
end

local waitMs, promoted = 0, {}
if rate > 0 then
  redis.call('ZREMRANGEBYSCORE', starts, '-inf', now)
  -- Redis' clock was set back since.
  redis.call('ZREMRANGEBYSCORE', starts, '(' .. text(now + math.max(ARGV[7] + window, ARGV[8])), '+inf')
  -- Unless the call was promoted for a start, which is reserved for it.
  if redis.call('ZREM', starts, jobId) == 0 then
    redis.call('ZADD', asking, 'NX', ARGV[10] == '' and now or ARGV[10], jobId)
    for _, first in ipairs(limit_grant({starts, asking}, {rate, ARGV[8]})) do
      if first ~= jobId then promoted[#promoted + 1] = first end
    end
    local ahead = redis.call('ZRANK', asking, jobId)
    if ahead then
      redis.call('PEXPIRE', asking, FORGOTTEN_MS)
      local next = redis.call('ZCARD', starts) - rate + ahead % rate
      local endsAt = redis.call('ZRANGE', starts, next, next, 'WITHSCORES')[2]
      -- One that has not ended yet may end now.
      local soonest = math.max(1, math.min(endsAt - now, window) + 1) + math.floor(ahead / rate) * window
      -- The calls before it may be gone: the waiters ask again, one after the other.
      waitMs = math.min(LONGEST_MS, soonest, LOOK_MS + EACH_MS * ahead)
    else
      redis.call('ZREM', starts, jobId)
    end
  end
end
local heldUntil = text(now + (waitMs > 0 and waitMs + 2000 or ARGV[5]))
if most > 0 then
  -- A slot that waits for its time is held a little beyond it.
  redis.call('ZADD', holders, heldUntil, jobId)
  -- Others may hold theirs for longer.
  local ttl = math.max(FORGOTTEN_MS, tonumber(ARGV[5]))
  if redis.call('PTTL', holders) < ttl then redis.call('PEXPIRE', holders, ttl) end
end
if waitMs > 0 then return {'later', waitMs, '', promoted} end
if rate > 0 then
  redis.call('ZADD', starts, now + ARGV[7] + window, ARGV[6])
  redis.call('PEXPIRE', starts, FORGOTTEN_MS)
end
return {'granted', 0, '', promoted, heldUntil}
