-- Shared by the scripts of this folder, which are loaded with this text in front of them.
-- Time is Redis' own, so that no two machines' clocks are ever compared.

-- Milliseconds since the epoch; the same at every point of a script.
local clock
local function nowMs()
  if not clock then
    local time = redis.call('TIME')
    clock = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return clock
end

-- A whole number as text, for a command that many calls of a script make: Redis takes longer to write a number with all its digits than
-- for the command.
local WHOLE = string.format('%d', 2 ^ 53) == '9007199254740992' and '%d' or '%.0f'
local numerals = {}
local function text(number)
  local numeral = numerals[number]
  if not numeral then
    numeral = string.format(WHOLE, number)
    numerals[number] = numeral
  end
  return numeral
end

-- JSON that several calls of a script are told in the same words, read once. Whole numbers in it become text before they are written.
local decodedOf = {}
local function decoded(json)
  local value = decodedOf[json]
  if not value then
    value = cjson.decode(json)
    decodedOf[json] = value
  end
  return value
end

-- Writes at the end of the script, for what it does not read again: those to one key become one command, however many calls the
-- script is about.
local gathered, gatheredBy, removed, counts, lifetimes, streams, events = {}, {}, {'DEL'}, {}, {}, {}, {}
local function gatheredFor(command, key) return gatheredBy[command] and gatheredBy[command][key] end
local function deferWrite(command, key, first, second)
  local write = gatheredFor(command, key)
  if not write then
    write = {command, key}
    gathered[#gathered + 1] = write
    gatheredBy[command] = gatheredBy[command] or {}
    gatheredBy[command][key] = write
  end
  local size = #write
  write[size + 1], write[size + 2] = first, second
end
local function removeLater(key) removed[#removed + 1] = key end
-- Few jobs have logs: they are removed only where one of the script's has.
local logs = {'EXISTS'}
local function mayHaveLogs(key) logs[#logs + 1] = key end
-- Leaves about so many entries in a stream.
local function trimLater(key, most) streams[key] = most end

-- Notifies BullMQ's listeners of a queue (`QueueEvents`), where the setting `bullEvents` is on.
--   …  fields and values of the event
local emitting
local function emit(queue, ...)
  if not emitting then
    local on, length = unpack(redis.call('HMGET', queue .. 'meta', 'events', 'opts.maxLenEvents'))
    emitting = on == 'on' and (length or '1000') or 'off'
  end
  if emitting == 'off' then return end
  redis.call('XADD', queue .. 'events', '*', ...)
  trimLater(queue .. 'events', emitting)
end

-- Members of a sorted set, those that will be added included.
local cardinalities = {}
local function cardinality(key)
  local added = gatheredFor('ZADD', key)
  cardinalities[key] = cardinalities[key] or redis.call('ZCARD', key)
  return cardinalities[key] + (added and (#added - 2) / 2 or 0)
end

-- Calls in flight that start later, those that will be added included.
local function delayedIn(inflight)
  local name, added, later = inflight .. ' delayed', gatheredFor('ZADD', inflight) or {}, 0
  cardinalities[name] = cardinalities[name] or redis.call('ZCOUNT', inflight, '(' .. text(nowMs()), '+inf')
  for at = 3, #added, 2 do
    if tonumber(added[at]) > nowMs() then later = later + 1 end
  end
  return cardinalities[name] + later
end

-- What workers of a queue lack (pass_on), by what calls need: their IDs, each between spaces. Most often nothing is there.
local lackersBy
local function lackersOf(queue)
  if not lackersBy then
    lackersBy = {}
    local known = redis.call('HGETALL', queue .. 'lackers')
    for at = 1, #known, 2 do lackersBy[known[at]] = known[at + 1] end
  end
  return lackersBy
end
-- 'except ' and IDs is what a call needs that those workers must not run.
local function lacks(queue, worker, need)
  local workers = string.match(need, '^except( .+)') or lackersOf(queue)[need]
  return workers and string.find(workers, ' ' .. worker .. ' ', 1, true) ~= nil
end

-- Lines of jobs (stand_in_line): how far their scores are apart, and those of this script with their sessions' last places.
local LINE, lines = 0x100000000, {}

-- Numbers of the lines that a worker leaves to others, because it lacks what their jobs need. Those that it must not run it looks at now
-- and then all the same: when nobody else comes, somebody has to say so.
local function linesLeftBy(queue, worker)
  local left, needs = {}, redis.call('HGETALL', queue .. 'line-needs')
  for at = 1, #needs, 2 do
    local isLook = string.find(needs[at + 1], '^except ') and nowMs() % 16 == 0
    if lacks(queue, worker, needs[at + 1]) and not isLook then left[tonumber(needs[at])] = true end
  end
  return left
end

-- How many jobs stand in lines, and in those that a worker does not leave to others.
local function standing(queue, left)
  local all = redis.call('ZCARD', queue .. 'prioritized')
  local own = all
  for number in pairs(left) do
    own = own - redis.call('ZCOUNT', queue .. 'prioritized', number * LINE, (number + 1) * LINE - 1)
  end
  return all, own
end

-- Workers that jobs can be pushed to, once idle_worker has looked, and what this script pushes to each.
local idle

-- What calls put back into the buckets of their retries, written once for all of the script.
local refills = {}

-- The capacity of a worker: its free slots, less the pushed jobs that are on their way to it. `received` is how many of
-- these it has had so far. Without a name, nothing is pushed to it.
local function capacity_of(queue, worker, free, received)
  if worker == '' then return tonumber(free) end
  return free - ((redis.call('HGET', queue .. 'pushed', worker) or 0) - received)
end

-- Counts one more in a hash that lives so long from its first count on.
local function deferCount(key, field, ttlMs)
  local fields = counts[key]
  if not fields then
    fields = {ttlMs = ttlMs, by = {}}
    counts[key] = fields
  end
  fields.by[field] = (fields.by[field] or 0) + 1
end

-- Lets a key live for twice `ttlMs` when it has less than that left: with room to spare, so that not every script has to.
local function keepLater(key, ttlMs) lifetimes[key] = math.max(lifetimes[key] or 0, ttlMs) end

-- The keys of a prefix.
local function keysOf(prefix, names)
  local keys = {}
  for position, name in ipairs(names) do keys[position] = prefix .. name end
  return keys
end

-- Whether a delayed job is due before each worker has looked again by itself, which it does every ten seconds at the latest.
local function isDelayedSoon(queue)
  local first = redis.call('ZRANGE', queue .. 'delayed', 0, 0, 'WITHSCORES')
  return first[2] ~= nil and first[2] / 0x1000 < nowMs() + 15000
end

-- Appends an event to the inbox of every producer that waits.
--   inboxes  producer IDs, separated by spaces; inboxPrefix  key of an inbox without its ID
--   event  JSON, in pieces: Lua looks at every byte of every text that it makes, and the message is one
local function notify(inboxes, inboxPrefix, event)
  if not inboxes then return end
  for id in string.gmatch(inboxes, '%S+') do
    local inbox = inboxPrefix .. id
    local told = events[inbox]
    if told then told[#told + 1] = event else events[inbox] = {event} end
  end
end

-- An inbox that is not read expires.
local INBOX_TTL_MS = 600000
local INBOX_MAX_LENGTH = 20000
local function writeGathered()
  for _, write in ipairs(gathered) do redis.call(unpack(write)) end
  if logs[2] and redis.call(unpack(logs)) > 0 then
    for at = 2, #logs do removeLater(logs[at]) end
  end
  if removed[2] then redis.call(unpack(removed)) end
  for key, fields in pairs(counts) do
    for field, count in pairs(fields.by) do
      if redis.call('HINCRBY', key, field, text(count)) == count then redis.call('PEXPIRE', key, fields.ttlMs) end
    end
  end
  for key, most in pairs(streams) do redis.call('XTRIM', key, 'MAXLEN', '~', most) end
  for _, line in pairs(lines) do
    local turns = {}
    for session, turn in pairs(line.turns) do
      turns[#turns + 1], turns[#turns + 2] = turn, line.number .. ' ' .. session
    end
    if #turns > 0 then redis.call('ZADD', line.sessions, unpack(turns)) end
  end
  for key, refill in pairs(refills) do
    local tokens = tonumber(redis.call('GET', key) or refill.floor)
    if tokens < refill.capacity then
      redis.call('SET', key, string.format('%.3f', math.min(refill.capacity, tokens + refill.tokens)), 'PX', refill.windowMs)
    end
  end
  for key, ttlMs in pairs(lifetimes) do
    if redis.call('PTTL', key) < tonumber(ttlMs) then redis.call('PEXPIRE', key, 2 * ttlMs) end
  end
  for _, worker in ipairs(idle or {}) do
    if worker.pushed > 0 then
      redis.call('ZADD', worker.queue .. 'pushable', text(worker.capacity), worker.name)
      worker.lines[1] = text(redis.call('HINCRBY', worker.queue .. 'pushed', worker.name, text(worker.pushed)))
      redis.call('PUBLISH', worker.channel, table.concat(worker.lines, '\n'))
    end
  end
  for inbox, told in pairs(events) do
    -- Who listens has them now, on one channel for all places; for one that is away they are kept. Whose ID begins with a dot listens
    -- to each place by itself, in a cluster where the place is.
    local message = {}
    for number, event in ipairs(told) do
      message[#message + 1] = number == 1 and '[' or ','
      for _, piece in ipairs(event) do message[#message + 1] = piece end
    end
    message[#message + 1] = ']'
    if redis.call('PUBLISH', (string.gsub(inbox, '{[^}]*}:(inbox:[^.])', '%1', 1)), table.concat(message)) == 0 then
      for number, event in ipairs(told) do told[number] = table.concat(event) end
      local length = redis.call('RPUSH', inbox, unpack(told))
      if length == #told then
        redis.call('PEXPIRE', inbox, INBOX_TTL_MS)
      elseif length > INBOX_MAX_LENGTH then
        -- The oldest events go: their receivers read the record.
        redis.call('LTRIM', inbox, -INBOX_MAX_LENGTH, -1)
      end
    end
  end
end

-- Appends records to those of the audit trail that wait to be chained.
--   texts  one on each line, '' for none, before those that the script itself has (records); most  how many entries may wait
-- Returns 1 when they are written. A server that is full still answers what needs no room.
local records = {}
local function add_records(key, texts, most)
  local command = {'XADD', key, 'MAXLEN', '~', most, '*'}
  if texts ~= '' then command[7], command[8] = 'records', texts end
  for _, text in ipairs(records) do command[#command + 1], command[#command + 2] = 'records', text end
  if not command[7] then return 1 end
  local added = redis.pcall(unpack(command))
  return type(added) == 'string' and 1 or 0
end

-- The event that tells of a call's end, now, in pieces: with its outcome, or the name of the text that it is kept in; with neither,
-- whoever waits reads the record.
local function settledEvent(callId, state, signature, outcome, now, textId)
  local event = {'{"type":"settled","callId":"', callId, '","state":"', state, '","atMs":', text(now)}
  local function add(name, value, last) event[#event + 1], event[#event + 2], event[#event + 3] = name, value, last end
  if (outcome or textId) and signature ~= '' then add(',"signature":"', signature, '"') end
  if textId then add(',"textId":"', textId, '"') end
  if outcome then add(',"outcome":', outcome, '}') else event[#event + 1] = '}' end
  return event
end

-- The record of a success keeps these in one field, 'ended': its generation, when it was claimed and when it ended, each as the distance
-- to the one before it, its fence, its version and its parameter digest, separated by spaces; and its only attempt, if there was no other:
-- when that started after the claim, how long it took, and its worker.
local function endedText(generation, createdAtMs, now, fence, version, digest, attempts)
  local ended = table.concat({generation, text(createdAtMs - generation), text(now - createdAtMs), fence, version, digest}, ' ')
  local own, startedAtMs, attempt = string.match(attempts, '^(%d+) (%d+) (%-?%d+ %S+)\n$')
  if own ~= fence then return ended end
  return ended .. ' ' .. text(startedAtMs - createdAtMs) .. ' ' .. attempt, true
end
local function endedFields(ended)
  local generation, created, settled, fence, version, digest = string.match(ended, '^(%d+) (%-?%d+) (%-?%d+) (%d+) (%d+) (%S*)')
  if not generation then return {} end
  local createdAtMs = generation + created
  return {
    generation = generation, createdAtMs = text(createdAtMs), updatedAtMs = text(createdAtMs + settled), fence = fence, version = version,
    paramsDigest = digest}
end

-- Adds a waiting producer to a record's list, once.
local function withInbox(inboxes, id)
  if id == '' then return inboxes or '' end
  if not inboxes or inboxes == '' then return id end
  if string.find(' ' .. inboxes .. ' ', ' ' .. id .. ' ', 1, true) then return inboxes end
  return inboxes .. ' ' .. id
end

-- A stored circuit is 'epoch|STATE|json'. Absent means closed, epoch 0. No script reads one again that it has written.
local circuits = {}
local function circuitOf(circuitsKey, name)
  local raw = circuits[name]
  if raw == nil then
    raw = redis.call('HGET', circuitsKey, name)
    circuits[name] = raw
  end
  if not raw then return '0', 'CLOSED', '' end
  local epoch, state = string.match(raw, '^(%d+)|([A-Z_]+)|')
  return epoch, state, raw
end

-- There may be any number of targets, each with a circuit (`tool:NAME:TARGET`): beyond 2,000 circuits some of targets are forgotten,
-- taken at random, and count as closed.
local function forgetTargets(circuitsKey, but)
  if redis.call('HLEN', circuitsKey) <= 2000 then return end
  for _, name in ipairs(redis.call('HRANDFIELD', circuitsKey, 8)) do
    local _, state = circuitOf(circuitsKey, name)
    if name ~= but and state ~= 'FORCED_OPEN' and string.find(name, '^tool:[^@:]+:') then
      redis.call('HDEL', circuitsKey, name)
    end
  end
end

-- Adds an outcome to a closed circuit's window: '1' success, '0' failure, '0:n' failure after n successes. An outcome of an earlier epoch is dropped.
local steady = {}
local function addSample(circuitsKey, windowKey, name, epoch, ok, size, ttlMs, now)
  if ok == '1' and steady[windowKey] == epoch then return true end
  local currentEpoch, state = circuitOf(circuitsKey, name)
  if state ~= 'CLOSED' or currentEpoch ~= epoch then return false end
  local sample = now .. ':' .. ok
  if ok == '1' then
    -- A success also says how many came in a row. One more behind a whole window of them would change nothing but its age.
    local newest = redis.call('LINDEX', windowKey, 0)
    local atMs, row = string.match(newest or '', '^(%d+):1:(%d+)$')
    row = tonumber(row or 0)
    if row >= tonumber(size) and now - atMs < 1000 then
      steady[windowKey] = epoch
      return true
    end
    sample = sample .. ':' .. math.min(row + 1, size)
  end
  redis.call('LPUSH', windowKey, sample)
  redis.call('LTRIM', windowKey, 0, size - 1)
  redis.call('PEXPIRE', windowKey, ttlMs)
  return true
end

-- A retry budget's bucket holds its tokens; absent means the floor (`retry-budget.ts` says what they are for).
local function takeRetry(key, floor, windowMs)
  local tokens = tonumber(redis.call('GET', key) or floor)
  -- An empty bucket stays empty for as long as calls ask for tokens: an outage may last longer than the window.
  if tokens < 1 then
    redis.call('PEXPIRE', key, windowMs)
    return false
  end
  redis.call('SET', key, string.format('%.3f', tokens - 1), 'PX', windowMs)
  return true
end

--   allowance  `RetryAllowance`
local function refillRetries(buckets, allowance)
  local key, budget = buckets .. allowance.bucket, allowance.budget
  local refill = refills[key]
  if not refill then
    refill = {tokens = 0, floor = budget.floor, capacity = budget.capacity, windowMs = budget.windowMs}
    refills[key] = refill
  end
  refill.tokens = refill.tokens + budget.ratio
end

-- The lack of a budget for one more call of this cost: unit (1 calls, 2 cost units, 3 time) and its spent part; nil when it suffices.
--   limits  most calls, cost units and time, ms; '' for no bound
local function lackOf(key, cost, limits)
  local spent = redis.call('HMGET', key, 'calls', 'costUnits', 'timeMs')
  for unit = 1, 3 do
    local limit, used = tonumber(limits[unit]), tonumber(spent[unit] or 0)
    -- To so many digits that 0.2 and 0.1 are 0.3.
    local after = unit == 1 and used + 1 or unit == 2 and tonumber(string.format('%.15g', used + cost)) or used
    if limit and (after > limit or (unit == 3 and used >= limit)) then return unit, tostring(used) end
  end
end

-- Takes a call from a budget, which is kept for so long: from its first call on with `window` '1', or from its last one.
local function takeFrom(key, cost, keptMs, window)
  redis.call('HINCRBYFLOAT', key, 'costUnits', cost)
  local calls = redis.call('HINCRBY', key, 'calls', 1)
  if calls == 1 or window == '0' then redis.call('PEXPIRE', key, keptMs) end
end

-- A record without a version has the first.
local function nextVersion(record)
  redis.call('HSETNX', record, 'version', '1')
  redis.call('HINCRBY', record, 'version', 1)
end

-- Whether the key of an ended call is free to run again, though its record is still there to be read.
local function isFree(state, freeAtMs, now)
  return freeAtMs and (state == 'failed' or state == 'cancelled') and tonumber(freeAtMs) <= now
end

-- Whether an operator can resolve a call of this state and outcome (JSON): it may have had its effect, or it was quarantined.
-- No text of others can look so: JSON escapes its quotation marks.
local function isUnresolved(state, outcome)
  if not outcome or (state ~= 'failed' and state ~= 'cancelled') then return false end
  return string.find(outcome, '"mayHaveHappened":true', 1, true) or string.find(outcome, '"code":"POISONED"', 1, true)
end
