-- Claims a call for the first who asks and puts its job into the queue, in one step: a claim without a job cannot exist.
-- Every other caller gets the state of the call, and is notified when it settles.
--
-- KEYS  what all calls of the script share, by name (claims)
-- ARGV  1 call ID  2 terms (JSON, `termsOf`)  3 key of its merge slot, '' for none, and behind a line break what names its request
--       4 producer's inbox ID, '' when none waits
--       5 parameter digest  6 request (JSON)  7 generation  8 signature, '' without keys  9 the job's data (JSON)
--       10 what counts the session's calls with this tool and these parameters, '' for nothing
--       11 where the large parameters of the request are kept, '' for none
--       12 the audit record of a new call, '' for none
--       13 number of budgets  14 what the call costs
--       15.. of each budget: key, most calls, cost units and time, ms ('' for no bound), how long it is kept, ms, '1' when that is
--         from its first call on
--       and behind all of them, for a call that waits for its approval: the approval (JSON), its signature, its ID, when it expires
-- Returns {code, call ID, now, …}:
--   claimed    duplicate count again  a new record, queued or pushed; in shadow mode, the state of what it would have met, or 'conflict';
--                               how often the session made this very call; '1' when this very request was submitted before, and runs
--   loop       count ms         it made it too often; only the count was written, which starts again in so many ms
--   overloaded in flight        the tier takes no more of its importance; nothing was written
--   spent      budget unit spent ms  a budget is spent (counted from 0; 1 calls, 2 cost units, 3 time), and is full again in so many
--                               ms; nothing was written
--   inflight   phase createdAt  another caller's call runs; an enforced caller has been added to those that are notified
--   done | failed | cancelled   outcome (JSON), settledAt, the outcome's signature, where a large outcome is, its reference
--   These two end with the request (JSON) of a call that the claimed one was merged into, or false.
--   conflict                    the key was used with other parameters; nothing was written
--   moved                       the call's record is in a segment; nothing was written
--   past                        a new call that was to start before now; nothing was written
-- Fails with UNKEPT when the large parameters are not there; nothing was written.
local partition, callId, inbox, paramsDigest, request, generation = KEYS, ARGV[1], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local terms = decoded(ARGV[2])
local mode, circuitName, need = terms.mode, terms.circuit, terms.need
local MAX_SEARCHED = 4096
local merging, shadow = terms.slot == 'merge', terms.slot == 'shadow' or terms.slot == 'shadow-inflight'
local slotId, naming = string.match(ARGV[3], '^([^\n]*)\n(.*)$')
local own, slot, retentionMs, queue = partition.records .. callId, partition.merges .. (slotId or ARGV[3]), partition.retentionMs, partition.queue
local now = nowMs()

local function read(key)
  local fields = redis.call('HMGET', key, 'state', 'paramsDigest', 'phase', 'createdAtMs', 'outcome', 'updatedAtMs', 'retriable', 'inboxes', 'sameAs', 'request',
    'outcomeSignature', 'fence', 'outcomeAt', 'outcomeParts', 'generation', 'freeAtMs', 'ended', 'keptUntilMs')
  local ended = fields[17] and endedFields(fields[17]) or {}
  return {
    exists = fields[1] or fields[9], state = fields[1], paramsDigest = fields[2] or ended.paramsDigest, phase = fields[3],
    createdAtMs = fields[4], outcome = fields[5], updatedAtMs = fields[6] or ended.updatedAtMs, retriable = fields[7] == '1',
    inboxes = fields[8], sameAs = fields[9], request = fields[10], signature = fields[11], fence = fields[12] or ended.fence,
    outcomeAt = fields[13], outcomeParts = fields[14], generation = fields[15], free = isFree(fields[1], fields[16], now),
    keptUntilMs = fields[18],
  }
end

local key, fence, anew, stale = own, nil, false, false
-- Most often nothing is there, and no call was moved.
local isKnown = redis.call('EXISTS', key, partition.segments) > 0
local record = isKnown and read(key) or {}
if isKnown and not record.exists and segment_of({partition.base}, {callId}) then return {'moved', callId, now} end
-- The key of a call that failed is free again: its record stays until the call runs again.
if record.free then anew, record = true, {fence = record.fence} end
-- This request was merged into another call before: it stays that call.
if record.sameAs then
  local leaderKey = partition.records .. record.sameAs
  local leading = read(leaderKey)
  if leading.exists and not leading.free then
    callId, key, record = record.sameAs, leaderKey, leading
    -- The merge slot must not expire before that call's record does, which in flight has no end yet.
    local left = leading.keptUntilMs and leading.keptUntilMs - now or redis.call('PTTL', leaderKey)
    if left < 0 then left = tonumber(retentionMs) end
    if left > redis.call('PTTL', own) then redis.call('PEXPIRE', own, text(left)) end
  elseif not leading.exists and segment_of({partition.base}, {record.sameAs}) then
    return {'moved', record.sameAs, now}
  else
    stale, record = true, {fence = record.fence}
  end
end

if not record.exists and merging then
  local leader = redis.call('GET', slot)
  if leader then
    local leaderKey = partition.records .. leader
    local leading = read(leaderKey)
    if leading.state == 'inflight' then
      if mode == 'enforced' then
        if anew then
          redis.call('DEL', own)
          remove_dead_letter({partition.base}, {ARGV[1]})
        end
        redis.call('HSET', own, 'sameAs', leader, 'sameRequest', naming)
        -- For as long as the leading call may be in flight, and its record from then on.
        redis.call('PEXPIRE', own, text(retentionMs + math.max(0, redis.call('PTTL', slot))))
      end
      callId, key, record = leader, leaderKey, leading
    end
  end
end

if record.exists then
  if record.paramsDigest ~= paramsDigest then return {'conflict', callId, now} end
  if record.state == 'inflight' then
    -- The first answer was lost on the way and the script, or the request, came again: this is the caller's own call.
    local own = record.request == request
    if own then
      redis.call('HSET', key, 'inboxes', withInbox(record.inboxes, inbox))
      return {'claimed', callId, now, false, 0, record.generation ~= generation and '1' or '0'}
    end
    if mode == 'enforced' then redis.call('HSET', key, 'inboxes', withInbox(record.inboxes, inbox)) end
    return {'inflight', callId, now, record.phase, record.createdAtMs, callId ~= ARGV[1] and record.request}
  end
  local again = record.state == 'failed' and record.retriable and mode == 'bestEffort'
  if not again then
    return {record.state, callId, now, record.outcome, record.updatedAtMs, record.signature or '', record.outcomeAt, record.outcomeParts,
      callId ~= ARGV[1] and record.request}
  end
  -- The call runs again: under its own name if it had been merged, and with the fences counted on, so that stragglers stay refused.
  callId, key = ARGV[1], own
  anew = true
end

if terms.isPast then return {'past', callId, now} end
local startAt = terms.startAt and terms.startAt > now and terms.startAt or nil
if terms.room then
  local inflight = cardinality(partition.inflight)
  -- Delayed calls, whose scores are their starts, take no place before.
  if inflight >= terms.room then inflight = inflight - delayedIn(partition.inflight) end
  if inflight >= terms.room then return {'overloaded', callId, now, inflight} end
end
local budgets, cost, firstBudget = tonumber(ARGV[13]), ARGV[14], 15
for budget = 0, budgets - 1 do
  local at = firstBudget + budget * 6
  local unit, used = lackOf(ARGV[at], cost, {unpack(ARGV, at + 1, at + 3)})
  if unit then return {'spent', callId, now, budget, unit, used, redis.call('PTTL', ARGV[at])} end
end

local params = ARGV[11]
if params ~= '' and redis.call('EXISTS', params) == 0 then error('UNKEPT: the large parameters are not there') end

-- Only what would run is counted: duplicates that are merged and replays do nothing.
local repetitions = 0
if ARGV[10] ~= '' then
  local count = partition.loops .. ARGV[10]
  repetitions = redis.call('INCR', count)
  if repetitions == 1 then redis.call('PEXPIRE', count, terms.windowMs) end
  if repetitions >= terms.refuseAt then return {'loop', callId, now, repetitions, redis.call('PTTL', count)} end
end
for budget = 0, budgets - 1 do
  local at = firstBudget + budget * 6
  takeFrom(ARGV[at], cost, ARGV[at + 4], ARGV[at + 5])
end
if anew then
  fence = redis.call('HGET', key, 'fence')
  -- Redis refuses this when its memory is full; after a DEL, it would take all that comes.
  redis.call('HSET', key, 'state', 'inflight')
  redis.call('DEL', key)
  remove_dead_letter({partition.base}, {callId})
end

local duplicate = false
if shadow then
  local first = redis.call('GET', slot)
  local met = first and redis.call('HMGET', partition.records .. first, 'state', 'paramsDigest', 'freeAtMs', 'ended') or {}
  if met[4] then met[2] = endedFields(met[4]).paramsDigest end
  duplicate = not isFree(met[1], met[3], now) and met[1]
  -- It succeeded; with which parameters, its segment says.
  if first and not met[1] and segment_of({partition.base}, {first}) then duplicate, met[2] = 'done', paramsDigest end
  if terms.slot == 'shadow-inflight' and duplicate ~= 'inflight' then duplicate = false end
  if duplicate and met[2] ~= paramsDigest then duplicate = 'conflict' end
  if not duplicate then redis.call('SET', slot, callId, 'PX', retentionMs) end
end
-- A worker that has nothing to do gets the call at once, and its attempt has begun. A call that must not start twice begins when the
-- worker asks for it: the message may get lost.
local kept = terms.kept and partition.keepsOne() and '1' or '0'
local jobId = callId .. '.' .. generation
local approval = firstBudget + budgets * 6
local worker = not ARGV[approval] and not startAt and idle_worker({queue}, {need}) or nil
local _, circuitState, circuit = circuitOf(partition.circuits, circuitName)
-- (A name of two lines would tear the message.)
local begins = worker and circuitState == 'CLOSED' and not terms.once and not string.find(circuitName, '\n', 1, true)
local fields = {
  'state', 'inflight', 'phase', begins and 'running' or startAt and 'delayed' or 'queued', 'generation', generation, 'request', request,
  'paramsDigest', paramsDigest, 'circuit', circuitName, 'inboxes', inbox, 'createdAtMs', text(now)}
local function field(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
local token = worker and worker.id .. ' ' .. generation
if begins then
  fence = (fence or record.fence or 0) + 1
  field('worker', worker.id)
  field('token', token)
  field('startedAtMs', text(now))
  field('lockUntilMs', text(now + worker.leaseMs))
end
if startAt then field('notBeforeMs', text(startAt)) end
if fence then field('fence', text(fence)) end
if ARGV[8] ~= '' then field('signature', ARGV[8]) end
if terms.once then field('once', '1') end
if terms.callback then field('callback', '1') end
-- The first write is one that Redis refuses when its memory is full: after any other, all of them would pass.
redis.call('HSET', key, unpack(fields))
if stale then redis.call('HDEL', key, 'sameAs', 'sameRequest') end
-- Nothing of a flushed call is left but its fence, which goes on counting and expires no more.
if record.fence or stale then redis.call('PERSIST', key) end
if params ~= '' then
  redis.call('HSET', key, 'paramsAt', params)
  redis.call('PERSIST', params)
end
if ARGV[approval] then
  local approvals, id, expiresAt = partition.approvals, ARGV[approval + 2], ARGV[approval + 3]
  redis.call('HSET', key, 'phase', 'awaiting-approval', 'approval', id)
  redis.call('HSET', approvals .. ':' .. id, 'state', 'pending', 'request', ARGV[approval], 'signature', ARGV[approval + 1],
    'generation', generation, 'expiresAtMs', expiresAt)
  redis.call('PEXPIREAT', approvals .. ':' .. id, expiresAt + retentionMs)
  redis.call('ZADD', approvals .. 's', now, id)
  redis.call('ZADD', approvals .. 's:pending', expiresAt, id)
  redis.call('ZREMRANGEBYSCORE', approvals .. 's', '-inf', now - 2 * retentionMs)
end
-- A delayed call is in flight from its start on.
deferWrite('ZADD', partition.inflight, text(startAt or now), callId)
-- How many calls of a tool there are, by the part of the retention in which they were claimed: the parts expire, the count is kept.
deferCount(partition.sizes .. text(math.floor(now * 24 / retentionMs)), terms.tool, 2 * retentionMs)
local sessionCalls = partition.sessions .. terms.session
for _, index in ipairs({partition.calls, sessionCalls}) do
  -- A call that runs again moves to the front. In a long index it stands twice for a while.
  if anew and redis.call('LLEN', index) <= MAX_SEARCHED then redis.call('LREM', index, 1, callId) end
  deferWrite('LPUSH', index, callId)
end
keepLater(sessionCalls, retentionMs)
if startAt then
  -- The indexes forget by the time of the claim, which is long ago when a delayed call starts.
  local delayed = partition.calls .. ':delayed:' .. terms.session
  redis.call('ZREMRANGEBYSCORE', delayed, '-inf', text(now))
  deferWrite('ZADD', delayed, text(startAt), callId)
  keepLater(delayed, startAt - now + retentionMs)
end
if merging then
  -- A person may take longer than an outcome is kept.
  local decidedMs = ARGV[approval] and math.max(0, ARGV[approval + 3] - now) or 0
  redis.call('SET', slot, callId, 'PX', text(retentionMs + decidedMs))
end
-- The indexes forget with the records: a few entries a claim keep them bounded.
if now % 16 == 0 then
  for _, index in ipairs({partition.calls, sessionCalls}) do partition.prune(index) end
end
if startAt and not ARGV[approval] then
  local isFar = startAt - now > tonumber(retentionMs) / 2
  enqueue_delayed({queue}, {jobId, terms.job, generation, ARGV[9], kept, startAt, terms.line, terms.session,
    isFar and partition.calls .. '\n' .. sessionCalls or nil})
elseif not worker then
  enqueue({queue}, {jobId, terms.job, generation, ARGV[9], kept, terms.line, terms.session, need})
else
  local begun = begins and {text(fence), request, ARGV[8], circuitName, circuit} or {'', '', '', '', ''}
  push({queue}, {worker, jobId, terms.job, ARGV[9], kept, generation, token, unpack(begun)})
end
if ARGV[12] ~= '' then records[#records + 1] = ARGV[12] end
return {'claimed', callId, now, duplicate, repetitions}
