-- Asks for one start under a limit that holds for the whole fleet: at most so many at a time, and so many starts in a window.
-- A call that cannot start learns when to ask again. Slots are given in the order of the first requests, sessions alternating;
-- starts in the order of the times at which they were asked for.
--
-- KEYS  1 holders, by the end of their lease  2 waiters, by their places  3 starts, by the latest time until which they count
--       4 waiters for the rate, by when they asked  5 sessions of waiters, by their last places
--       6 the calls that were promoted for a slot, by their places
-- ARGV  1 who asks  2 how many at a time, '0' for any number  3 starts in a window, '0' for any number  4 window, ms
--       5 lease of a slot, ms  6 name of this start  7 how long it may take to arrive, ms  8 how long a slot, or a start, is kept for
--       whoever was woken, ms  9 session  10 since when it asks, ms; '' for now
-- Returns {'granted' · 'later', for a start · 'waiting', for a slot, ms until it asks again, '1' when its turn at a slot is near, the
-- names of the jobs to promote, until when the slot is held}
local FORGOTTEN_MS = 600000
local SHORTEST_MS, LONGEST_MS, EACH_MS, LOOK_MS = 500, 300000, 50, 2000
local now = nowMs()
local holders, waiters, starts, asking, places, wokenPlaces = unpack(KEYS)
local who, most, rate, window, session = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[9]

if most > 0 then
  redis.call('ZREMRANGEBYSCORE', holders, '-inf', now)
  if not redis.call('ZSCORE', holders, who) then
    local free = most - redis.call('ZCARD', holders)
    local ahead, partition = redis.call('ZRANK', waiters, who), redis.call('ZSCORE', wokenPlaces, who)
    -- A promoted call that comes late has lost its slot, but not its place: the next ones are not here yet.
    if free < 1 or not partition and (ahead or redis.call('ZCARD', waiters)) >= free then
      if partition then
        redis.call('ZADD', waiters, partition, who)
        redis.call('ZREM', wokenPlaces, who)
        ahead = redis.call('ZRANK', waiters, who)
      elseif not ahead then
        local first = redis.call('ZRANGE', waiters, 0, 0, 'WITHSCORES')[2]
        redis.call('ZREMRANGEBYSCORE', places, '-inf', first and '(' .. first or '+inf')
        partition = math.max(first and first + 1 or 0, (redis.call('ZSCORE', places, session) or -1) + 1)
        redis.call('ZADD', waiters, partition, who)
        redis.call('ZADD', places, partition, session)
        ahead = redis.call('ZRANK', waiters, who)
      end
      redis.call('PEXPIRE', waiters, FORGOTTEN_MS)
      redis.call('PEXPIRE', places, FORGOTTEN_MS)
      local woken = limit_grant({holders, waiters, wokenPlaces}, {most, ARGV[8]})
      -- Whoever ends wakes the first that waits. Who does not end, or does not come when woken, is past its lease then: one after the
      -- other, those that wait look for that.
      local lease = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2] - now
      return {'waiting', math.min(LONGEST_MS, math.max(SHORTEST_MS, lease) + EACH_MS * ahead), ahead < most and '1' or '0', woken}
    end
    redis.call('ZREM', waiters, who)
  end
  redis.call('ZREM', wokenPlaces, who)
end

local waitMs, woken = 0, {}
if rate > 0 then
  redis.call('ZREMRANGEBYSCORE', starts, '-inf', now)
  -- Unless the call was promoted for a start, which is reserved for it.
  if redis.call('ZREM', starts, who) == 0 then
    redis.call('ZADD', asking, 'NX', ARGV[10] == '' and now or ARGV[10], who)
    for _, first in ipairs(limit_grant({starts, asking}, {rate, ARGV[8]})) do
      if first ~= who then woken[#woken + 1] = first end
    end
    local ahead = redis.call('ZRANK', asking, who)
    if ahead then
      redis.call('PEXPIRE', asking, FORGOTTEN_MS)
      local next = redis.call('ZCARD', starts) - rate + ahead % rate
      local endsAt = redis.call('ZRANGE', starts, next, next, 'WITHSCORES')[2]
      -- One that has not ended yet may end now.
      local soonest = math.max(1, math.min(endsAt - now, window) + 1) + math.floor(ahead / rate) * window
      -- Those before it may be gone: one after the other, those that wait look for that.
      waitMs = math.min(LONGEST_MS, soonest, LOOK_MS + EACH_MS * ahead)
    else
      redis.call('ZREM', starts, who)
    end
  end
end
local heldUntil = text(now + (waitMs > 0 and waitMs + 2000 or ARGV[5]))
if most > 0 then
  -- A slot that waits for its time is held a little beyond it.
  redis.call('ZADD', holders, heldUntil, who)
  -- Others may hold theirs for longer.
  local ttl = math.max(FORGOTTEN_MS, tonumber(ARGV[5]))
  if redis.call('PTTL', holders) < ttl then redis.call('PEXPIRE', holders, ttl) end
end
if waitMs > 0 then return {'later', waitMs, '', woken} end
if rate > 0 then
  redis.call('ZADD', starts, now + ARGV[7] + window, ARGV[6])
  redis.call('PEXPIRE', starts, FORGOTTEN_MS)
end
return {'granted', 0, '', woken, heldUntil}
