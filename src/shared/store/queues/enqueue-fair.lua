-- Puts a job into its fair queue (line), where the sessions take turns: a session's next job gets the turn behind its last one. The first
-- job of a new session gets the turn behind the line's first job, not behind the backlog of the others (start-time fair queuing).
--
-- A line is one of BullMQ's priorities: its jobs have scores from its number * LINE on. Lines take turns, too (next-fair.lua).
--
-- KEYS  1 key prefix of the queue
-- ARGV  1 job ID  2 line: its weight (how many turns it has while a line of weight 1 has one), a space, its name; for a line that some
--         workers skip, a line break and the need of its jobs  3 session  4 '1' when the script fetches from the line afterwards
local queue, jobId, name, session = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local prioritized, numbers, order, sessions = queue .. 'prioritized', queue .. 'lines', queue .. 'line-order', queue .. 'line-sessions'
local line = lines[name]
if not line then
  local number = redis.call('HGET', numbers, name)
  if not number then
    number = redis.call('HINCRBY', numbers, '', 1)
    redis.call('HSET', numbers, name, number)
    local need = string.match(name, '\n(.*)')
    if need then redis.call('HSET', queue .. 'line-needs', number, need) end
  end
  local from = number * LINE
  local to = from + LINE - 1
  local first = redis.call('ZRANGEBYSCORE', prioritized, from, to, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  -- Removes sessions whose last turn is over.
  if not first or nowMs() % 16 == 0 then redis.call('ZREMRANGEBYSCORE', sessions, from, first and '(' .. first or to) end
  line = {number = number, join = first and first + 1 or from, sessions = sessions, turns = {}}
  -- The older of two sessions with equal turns goes first.
  local member = string.format('%010d ', number) .. string.match(name, '^%S+')
  if not redis.call('ZSCORE', order, member) then
    redis.call('ZADD', order, redis.call('ZRANGE', order, 0, 0, 'WITHSCORES')[2] or 0, member)
  end
  lines[name] = line
end
local last = line.turns[session] or tonumber(redis.call('ZSCORE', sessions, line.number .. ' ' .. session) or -1)
local turn = math.max(line.join, last + 1)
line.turns[session] = turn
if ARGV[4] then redis.call('ZADD', prioritized, text(turn), jobId) else deferWrite('ZADD', prioritized, turn, jobId) end
