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

-- Parses JSON. Calls of one script often have the same text, which is parsed once. Whole numbers in it become text before they are written.
local decodedByText = {}
local function decoded(json)
  local value = decodedByText[json]
  if not value then
    value = cjson.decode(json)
    decodedByText[json] = value
  end
  return value
end

-- Deferred writes, made at the end of the script: those to one key become one command, however many calls the script is about. For data
-- that the script does not read again.
local writes, writesByKey, removed, counts, lifetimes, streams, events = {}, {}, {'DEL'}, {}, {}, {}, {}
local function pendingWrite(command, key) return writesByKey[command] and writesByKey[command][key] end
local function deferWrite(command, key, first, second)
  local write = pendingWrite(command, key)
  if not write then
    write = {command, key}
    writes[#writes + 1] = write
    writesByKey[command] = writesByKey[command] or {}
    writesByKey[command][key] = write
  end
  local size = #write
  write[size + 1], write[size + 2] = first, second
end
local function deferDelete(key) removed[#removed + 1] = key end
-- Deletes the logs of jobs. Few jobs have any, so they are deleted only if one of the script's jobs has.
local logs = {'EXISTS'}
local function deferLogDelete(key) logs[#logs + 1] = key end
-- Trims a stream to about so many entries.
local function deferTrim(key, maxLength) streams[key] = maxLength end

-- Notifies BullMQ's listeners of a queue (`QueueEvents`), if the setting `bullEvents` is on.
--   …  fields and values of the event
local emitting
local function emit(queue, ...)
  if not emitting then
    local on, length = unpack(redis.call('HMGET', queue .. 'meta', 'events', 'opts.maxLenEvents'))
    emitting = on == 'on' and (length or '1000') or 'off'
  end
  if emitting == 'off' then return end
  redis.call('XADD', queue .. 'events', '*', ...)
  deferTrim(queue .. 'events', emitting)
end

-- The members of a sorted set, including deferred ones.
local cardinalities = {}
local function cardinality(key)
  local added = pendingWrite('ZADD', key)
  cardinalities[key] = cardinalities[key] or redis.call('ZCARD', key)
  return cardinalities[key] + (added and (#added - 2) / 2 or 0)
end

-- The delayed calls among those in flight, including deferred ones. The score of a delayed call is its start.
local function countDelayed(inflight)
  local name, added, later = inflight .. ' delayed', pendingWrite('ZADD', inflight) or {}, 0
  cardinalities[name] = cardinalities[name] or redis.call('ZCOUNT', inflight, '(' .. text(nowMs()), '+inf')
  for index = 3, #added, 2 do
    if tonumber(added[index]) > nowMs() then later = later + 1 end
  end
  return cardinalities[name] + later
end

-- For each need of a call, the workers that do not support it (skip-worker.lua): their IDs, each between spaces. Usually there are none.
local incompatibleByNeed
local function incompatibleWorkers(queue)
  if not incompatibleByNeed then
    incompatibleByNeed = {}
    local entries = redis.call('HGETALL', queue .. 'lackers')
    for index = 1, #entries, 2 do incompatibleByNeed[entries[index]] = entries[index + 1] end
  end
  return incompatibleByNeed
end
-- The need 'except ' and IDs excludes these workers.
local function isIncompatible(queue, worker, need)
  local workers = string.match(need, '^except( .+)') or incompatibleWorkers(queue)[need]
  return workers and string.find(workers, ' ' .. worker .. ' ', 1, true) ~= nil
end

-- Fair queues, called lines (enqueue-fair.lua): the distance of their scores, and those of this script with their sessions' last turns.
local LINE, lines = 0x100000000, {}

-- The numbers of the lines that a worker skips, because it does not support what their jobs need. A line that excludes the worker is
-- offered to it now and then: if no other worker comes, one must report that.
local function skippedLines(queue, worker)
  local skipped, needs = {}, redis.call('HGETALL', queue .. 'line-needs')
  for index = 1, #needs, 2 do
    local isOffered = string.find(needs[index + 1], '^except ') and nowMs() % 16 == 0
    if isIncompatible(queue, worker, needs[index + 1]) and not isOffered then skipped[tonumber(needs[index])] = true end
  end
  return skipped
end

-- The number of jobs in all lines, and without the skipped ones.
local function queuedJobs(queue, skipped)
  local total = redis.call('ZCARD', queue .. 'prioritized')
  local eligible = total
  for number in pairs(skipped) do
    eligible = eligible - redis.call('ZCOUNT', queue .. 'prioritized', number * LINE, (number + 1) * LINE - 1)
  end
  return total, eligible
end

-- Workers that can receive jobs directly, with the jobs that this script sends to each. Filled by the first idle_worker.
local idleWorkers

-- Refills of retry budgets, written once for all calls of the script.
local refills = {}

-- The capacity of a worker: its free slots, less the dispatched jobs that have not arrived. `received` is how many have arrived so far.
-- Without a name, no jobs are dispatched to it.
local function capacity_of(queue, worker, free, received)
  if worker == '' then return tonumber(free) end
  return free - ((redis.call('HGET', queue .. 'pushed', worker) or 0) - received)
end

-- Adds one to a field of a hash. The hash expires `ttlMs` after the first count of a field.
local function deferCount(key, field, ttlMs)
  local fields = counts[key]
  if not fields then
    fields = {ttlMs = ttlMs, increments = {}}
    counts[key] = fields
  end
  fields.increments[field] = (fields.increments[field] or 0) + 1
end

-- Lets a key live for at least `ttlMs`. If it has less, it gets twice as much, so that few scripts must write.
local function deferExpire(key, ttlMs) lifetimes[key] = math.max(lifetimes[key] or 0, ttlMs) end

-- Prepends a prefix to the names of keys.
local function keysOf(prefix, names)
  local keys = {}
  for position, name in ipairs(names) do keys[position] = prefix .. name end
  return keys
end

-- Whether a delayed job is due within 15 s. Each worker fetches by itself every 10 s at the latest.
local function isDelayedSoon(queue)
  local first = redis.call('ZRANGE', queue .. 'delayed', 0, 0, 'WITHSCORES')
  return first[2] ~= nil and first[2] / 0x1000 < nowMs() + 15000
end

-- Appends an event to the inbox of every producer that waits.
--   inboxes  producer IDs, separated by spaces; inboxPrefix  key of an inbox without its ID
--   event  JSON, in pieces: Lua hashes every text that it builds, so only the whole message is built
local function notify(inboxes, inboxPrefix, event)
  if not inboxes then return end
  for id in string.gmatch(inboxes, '%S+') do
    local inbox = inboxPrefix .. id
    local queued = events[inbox]
    if queued then queued[#queued + 1] = event else events[inbox] = {event} end
  end
end

-- An inbox that is not read expires.
local INBOX_TTL_MS = 600000
local INBOX_MAX_LENGTH = 20000
local function flushWrites()
  for _, write in ipairs(writes) do redis.call(unpack(write)) end
  if logs[2] and redis.call(unpack(logs)) > 0 then
    for index = 2, #logs do deferDelete(logs[index]) end
  end
  if removed[2] then redis.call(unpack(removed)) end
  for key, fields in pairs(counts) do
    for field, count in pairs(fields.increments) do
      if redis.call('HINCRBY', key, field, text(count)) == count then redis.call('PEXPIRE', key, fields.ttlMs) end
    end
  end
  for key, maxLength in pairs(streams) do redis.call('XTRIM', key, 'MAXLEN', '~', maxLength) end
  for _, line in pairs(lines) do
    local turns = {}
    for session, turn in pairs(line.turns) do
      turns[#turns + 1], turns[#turns + 2] = turn, line.number .. ' ' .. session
    end
    if #turns > 0 then redis.call('ZADD', line.sessions, unpack(turns)) end
  end
  for key, refill in pairs(refills) do
    local tokens = tonumber(redis.call('GET', key) or '') or refill.floor
    if tokens < refill.capacity then
      redis.call('SET', key, string.format('%.9f', math.min(refill.capacity, tokens + refill.tokens)), 'PX', refill.windowMs)
    end
  end
  for key, ttlMs in pairs(lifetimes) do
    if redis.call('PTTL', key) < tonumber(ttlMs) then redis.call('PEXPIRE', key, 2 * ttlMs) end
  end
  for _, worker in ipairs(idleWorkers or {}) do
    if worker.pushed > 0 then
      redis.call('ZADD', worker.queue .. 'pushable', text(worker.capacity), worker.name)
      worker.lines[1] = text(redis.call('HINCRBY', worker.queue .. 'pushed', worker.name, text(worker.pushed)))
      redis.call('PUBLISH', worker.channel, table.concat(worker.lines, '\n'))
    end
  end
  for inbox, queued in pairs(events) do
    -- A producer subscribes to one channel for all partitions. In a cluster its ID begins with a dot, and it subscribes to a channel in each
    -- partition. Without a subscriber, the events are stored in a list.
    local message = {}
    for number, event in ipairs(queued) do
      message[#message + 1] = number == 1 and '[' or ','
      for _, piece in ipairs(event) do message[#message + 1] = piece end
    end
    message[#message + 1] = ']'
    if redis.call('PUBLISH', (string.gsub(inbox, '{[^}]*}:(inbox:[^.])', '%1', 1)), table.concat(message)) == 0 then
      for number, event in ipairs(queued) do queued[number] = table.concat(event) end
      local length = redis.call('RPUSH', inbox, unpack(queued))
      if length == #queued then
        redis.call('PEXPIRE', inbox, INBOX_TTL_MS)
      elseif length > INBOX_MAX_LENGTH then
        -- Drops the oldest events: their receivers read the records instead.
        redis.call('LTRIM', inbox, -INBOX_MAX_LENGTH, -1)
      end
    end
  end
end

-- Appends records to those of the audit trail that wait to be chained.
--   texts  one record on each line, '' for none, before those of the script itself (records); maxLength  how many entries may wait
-- Returns 1 when they are written. The script still answers when Redis' memory is full.
local records = {}
local function add_records(key, texts, maxLength)
  if texts ~= '' then table.insert(records, 1, texts) end
  if #records == 0 then return 1 end
  local added = redis.pcall('XADD', key, 'MAXLEN', '~', maxLength, '*', 'records', table.concat(records, '\n'))
  return type(added) == 'string' and 1 or 0
end

-- The event of a call's end, now, in pieces: with its outcome, or the ID of the text that holds it. Without both, the receiver reads the
-- record.
local function settledEvent(callId, state, signature, outcome, now, textId)
  local event = {'{"type":"settled","callId":"', callId, '","state":"', state, '","atMs":', text(now)}
  local function add(name, value, last) event[#event + 1], event[#event + 2], event[#event + 3] = name, value, last end
  if (outcome or textId) and signature ~= '' then add(',"signature":"', signature, '"') end
  if textId then add(',"textId":"', textId, '"') end
  if outcome then add(',"outcome":', outcome, '}') else event[#event + 1] = '}' end
  return event
end

-- The record of a success packs these into its field 'ended', separated by spaces: generation; claim, as ms after the generation; end, as
-- ms after the claim; fence; version; parameter digest. If there was one attempt only, its start (ms after the claim), duration and worker
-- follow.
local function endedText(generation, createdAtMs, now, fence, version, digest, attempts)
  local ended = table.concat({generation, text(createdAtMs - generation), text(now - createdAtMs), fence, version, digest}, ' ')
  local onlyFence, startedAtMs, attempt = string.match(attempts, '^(%d+) (%d+) (%-?%d+ %S+)\n$')
  if onlyFence ~= fence then return ended end
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

-- A stored circuit is 'epoch|STATE|json'. Absent means closed, epoch 0. No script reads a circuit after it wrote it.
local circuits = {}
local function circuitOf(circuitsKey, name)
  local raw = circuits[name]
  if raw == nil then
    raw = redis.call('HGET', circuitsKey, name)
    circuits[name] = raw
  end
  local epoch, state = string.match(raw or '', '^([1-9]%d*)|([A-Z_]+)|{')
  if not epoch or #epoch > 15 then return '0', 'CLOSED', '' end
  return epoch, state, raw
end

-- Each target of a tool has a circuit (`tool:NAME:TARGET`), and there may be any number of targets. Beyond 2,000 circuits, random ones of
-- targets are deleted, and count as closed.
local function forgetTargets(circuitsKey, except)
  if redis.call('HLEN', circuitsKey) <= 2000 then return end
  for _, name in ipairs(redis.call('HRANDFIELD', circuitsKey, 8)) do
    local _, state = circuitOf(circuitsKey, name)
    if name ~= except and state ~= 'FORCED_OPEN' and string.find(name, '^tool:[^@:]+:') then
      redis.call('HDEL', circuitsKey, name)
    end
  end
end

-- Adds a success ('1') or a failure ('0', or '0:n' after n successes) to a closed circuit's window, unless `sample` is of an old epoch.
local steady = {}
local function addSample(circuitsKey, windowKey, sample, ok, now)
  local epoch, size = text(sample.epoch), sample.windowSize
  if ok == '1' and steady[windowKey] == epoch then return end
  local currentEpoch, state = circuitOf(circuitsKey, sample.circuit)
  if state ~= 'CLOSED' or currentEpoch ~= epoch then return end
  local outcome = now .. ':' .. ok
  if ok == '1' then
    -- A success also counts the successes in a row. When they fill the window, one more would change only its age.
    local newest = redis.call('LINDEX', windowKey, 0)
    local atMs, row = string.match(newest or '', '^(%d+):1:(%d+)$')
    row = tonumber(row or 0)
    if row >= size and now - atMs < 1000 then
      steady[windowKey] = epoch
      return
    end
    outcome = outcome .. ':' .. math.min(row + 1, size)
  end
  redis.call('LPUSH', windowKey, outcome)
  redis.call('LTRIM', windowKey, 0, size - 1)
  redis.call('PEXPIRE', windowKey, sample.windowMs)
end

-- A retry budget's bucket holds its tokens; absent, or what is no number, means the floor (`retry-budget.ts`).
local function takeRetry(key, floor, windowMs)
  local tokens = tonumber(redis.call('GET', key) or '') or tonumber(floor)
  -- An empty bucket stays empty for as long as calls ask for tokens: an outage may last longer than the window.
  if tokens < 1 then
    redis.call('PEXPIRE', key, windowMs)
    return false
  end
  redis.call('SET', key, string.format('%.9f', tokens - 1), 'PX', windowMs)
  return true
end

--   allowance  `RetryAllowance`
local function refillRetries(buckets, allowance)
  local key, budget = buckets .. allowance.bucket, allowance.budget
  local refill = refills[key] or {tokens = 0, floor = budget.floor, capacity = budget.capacity, windowMs = budget.windowMs}
  refill.tokens = refill.tokens + budget.ratio
  refills[key] = refill
end

-- The unit of a budget that one more call of this cost would exceed (1 calls, 2 cost units, 3 time), and how much of it is spent; nil when
-- the budget suffices. An error for a count that is no number: counting from zero would lift the limit.
--   limits  of calls, cost units and time, ms; '' for no limit  keptMs  the longest that the record is kept: where Redis' clock was set
--   back, it would expire later
local function exceededUnit(key, cost, limits, keptMs)
  local spent = redis.call('HMGET', key, 'calls', 'costUnits', 'timeMs')
  for unit = 1, 3 do
    local limit, used = tonumber(limits[unit]), tonumber(spent[unit] or 0) or error('WRONGTYPE: a count of ' .. key .. ' is no number', 0)
    -- Rounded to 15 digits, 0.2 and 0.1 are 0.3.
    local after = unit == 1 and used + 1 or unit == 2 and tonumber(string.format('%.15g', used + cost)) or used
    if limit and (after > limit or (unit == 3 and used >= limit)) then
      if redis.call('PTTL', key) > tonumber(keptMs) then redis.call('PEXPIRE', key, keptMs) end
      return unit, tostring(used)
    end
  end
end

-- Takes a call from a budget, whose record expires `ttlMs` after its first call with `window` '1', else after its last one.
local function takeBudget(key, cost, ttlMs, window)
  redis.call('HINCRBYFLOAT', key, 'costUnits', cost)
  local calls = redis.call('HINCRBY', key, 'calls', 1)
  if calls == 1 or window == '0' then redis.call('PEXPIRE', key, ttlMs) end
end

-- A record without a version has version 1.
local function nextVersion(record)
  redis.call('HSETNX', record, 'version', '1')
  redis.call('HINCRBY', record, 'version', 1)
end

-- Whether the key of an ended call may run again, while its record can still be read.
local function isFree(state, freeAtMs, now)
  return freeAtMs and (state == 'failed' or state == 'cancelled') and tonumber(freeAtMs) <= now
end

-- Whether an operator can resolve a call of this state and outcome (JSON): it may have had its effect, or it was quarantined.
-- Texts inside the outcome cannot match: JSON escapes their quotation marks.
local function isUnresolved(state, outcome)
  if not outcome or (state ~= 'failed' and state ~= 'cancelled') then return false end
  return string.find(outcome, '"mayHaveHappened":true', 1, true) or string.find(outcome, '"code":"POISONED"', 1, true)
end
