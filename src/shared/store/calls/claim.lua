-- Claims a call for its first caller and puts its job into the queue, in one step: a claim without a job cannot exist.
-- Every other caller gets the state of the call, and is notified when it settles.
--
-- KEYS  a table of what all calls of the script share (claim-batch.lua)
-- ARGV  1 call ID  2 terms (JSON, `claimTerms`)  3 key of its merge slot, '' for none, a line break and the naming part of its request
--       4 producer's inbox ID, '' when none waits
--       5 parameter digest  6 request (JSON)  7 generation  8 signature, '' without keys  9 the job's data (JSON)
--       10 ID that counts the session's calls with this tool and these parameters, '' for no count
--       11 key of the large parameters of the request, '' for none
--       12 the audit record of a new call, '' for none
--       13 number of budgets  14 cost of the call
--       15.. of each budget: key, limits of calls, cost units and time, ms ('' for no limit), time to live, ms, '1' when that runs from
--         its first call on
--       last, for a call that waits for its approval: the approval (JSON), its signature, its ID, its expiry
-- Returns {code, call ID, now, …}, or the code alone for a new record without more to say:
--   claimed    duplicate count resubmitted  a new record, queued or dispatched; in shadow mode, the state of the call that it would have
--                               merged with, or 'conflict'; how often the session made this call; '1' when the same request was
--                               submitted before and is in flight
--   loop       count ms         the session made it too often; only the count was written, which starts again in so many ms
--   overloaded in flight        the tier accepts no more calls of its priority; nothing was written
--   spent      budget unit spent ms  a budget is spent (index from 0; unit 1 calls, 2 cost units, 3 time), and is full again in so many
--                               ms; nothing was written
--   inflight   phase createdAt  another caller's call is in flight; an enforced caller was added to those that are notified
--   done | failed | cancelled   outcome (JSON), settledAt, the outcome's signature, the key of a large outcome, its reference
--   These two end with the request (JSON) of the call into which the claimed one was merged, or false.
--   conflict                    the key was used with other parameters; nothing was written
--   moved                       the call's record is in a segment; nothing was written
--   stale                       the step of the call's batch or plan is not written, or another process drives it; nothing was written
--   past                        a new call whose start is in the past; nothing was written
-- Fails with UNKEPT when the large parameters do not exist; nothing was written.
local partition, callId, inbox, paramsDigest, request, generation = KEYS, ARGV[1], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local terms = decoded(ARGV[2])
local mode, circuitName, need = terms.mode, terms.circuit, terms.need
local MAX_SEARCHED = 4096
local merging, shadow = terms.slot == 'merge', terms.slot == 'shadow' or terms.slot == 'shadow-inflight'
local slotId, naming = string.match(ARGV[3], '^([^\n]*)\n(.*)$')
local ownKey, slot, retentionMs, queue = partition.records .. callId, partition.merges .. (slotId or ARGV[3]), partition.retentionMs, partition.queue
local now = nowMs()

-- All claims of a step share this table.
local step = terms.step
if step and step.holds == nil then
  local isDriven = tonumber(redis.call('HGET', step.record, 'fence')) == step.fence
  step.holds = isDriven and redis.call('HEXISTS', step.record, 'step:' .. step.number) == 1
end
if step and not step.holds then return {'stale', callId, now} end

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

local key, fence, runsAgain, stale = ownKey, nil, false, false
local mayExist = partition.mayExist or partition.seen[callId]
partition.seen[callId] = true
local record = mayExist and read(key) or {}
if mayExist and not record.exists and segment_of({partition.base}, {callId}) then return {'moved', callId, now} end
-- The key of a failed call is free again. Its record stays until the call runs again.
if record.free then runsAgain, record = true, {fence = record.fence} end
-- This request was merged into another call before, and stays merged.
if record.sameAs then
  local leaderKey = partition.records .. record.sameAs
  local leader = read(leaderKey)
  if leader.exists and not leader.free then
    callId, key, record = record.sameAs, leaderKey, leader
    -- This record must not expire before the leader's, which has no expiry while it is in flight.
    local ttlMs = leader.keptUntilMs and leader.keptUntilMs - now or redis.call('PTTL', leaderKey)
    if ttlMs < 0 then ttlMs = tonumber(retentionMs) end
    if ttlMs > redis.call('PTTL', ownKey) then redis.call('PEXPIRE', ownKey, text(ttlMs)) end
  elseif not leader.exists and segment_of({partition.base}, {record.sameAs}) then
    return {'moved', record.sameAs, now}
  else
    stale, record = true, {fence = record.fence}
  end
end

if not record.exists and merging then
  local leaderId = redis.call('GET', slot)
  if leaderId then
    local leaderKey = partition.records .. leaderId
    local leader = read(leaderKey)
    if leader.state == 'inflight' then
      if mode == 'enforced' then
        if runsAgain then
          redis.call('DEL', ownKey)
          remove_dead_letter({partition.base}, {ARGV[1]})
        end
        redis.call('HSET', ownKey, 'sameAs', leaderId, 'sameRequest', naming)
        -- As long as the leader may be in flight, and its record lives after that.
        redis.call('PEXPIRE', ownKey, text(retentionMs + math.max(0, redis.call('PTTL', slot))))
      end
      callId, key, record = leaderId, leaderKey, leader
    end
  end
end

if record.exists then
  if record.paramsDigest ~= paramsDigest then return {'conflict', callId, now} end
  if record.state == 'inflight' then
    -- The script, or the request, was sent again because its first answer was lost: this is the caller's own call.
    if record.request == request then
      redis.call('HSET', key, 'inboxes', withInbox(record.inboxes, inbox))
      return {'claimed', callId, now, false, 0, record.generation ~= generation and '1' or '0'}
    end
    if mode == 'enforced' then redis.call('HSET', key, 'inboxes', withInbox(record.inboxes, inbox)) end
    return {'inflight', callId, now, record.phase, record.createdAtMs, callId ~= ARGV[1] and record.request}
  end
  local mayRetry = record.state == 'failed' and record.retriable and mode == 'bestEffort'
  if not mayRetry then
    return {record.state, callId, now, record.outcome, record.updatedAtMs, record.signature or '', record.outcomeAt, record.outcomeParts,
      callId ~= ARGV[1] and record.request}
  end
  -- The call runs again: under its own ID if it was merged. Its fence goes on counting, so that late attempts stay refused.
  callId, key = ARGV[1], ownKey
  runsAgain = true
end

if terms.isPast then return {'past', callId, now} end
local startAt = terms.startAt and terms.startAt > now and terms.startAt or nil
if terms.maxInflight then
  local inflight = cardinality(partition.inflight)
  -- Delayed calls do not count before their starts.
  if inflight >= terms.maxInflight then inflight = inflight - countDelayed(partition.inflight) end
  if inflight >= terms.maxInflight then return {'overloaded', callId, now, inflight} end
end
local budgets, cost, firstBudget = tonumber(ARGV[13]), ARGV[14], 15
for budget = 0, budgets - 1 do
  local index = firstBudget + budget * 6
  local unit, used = exceededUnit(ARGV[index], cost, {unpack(ARGV, index + 1, index + 3)}, ARGV[index + 4])
  if unit then return {'spent', callId, now, budget, unit, used, redis.call('PTTL', ARGV[index])} end
end

local params = ARGV[11]
if params ~= '' and redis.call('EXISTS', params) == 0 then error('UNKEPT: the large parameters do not exist') end

-- Only calls that would run are counted, not merged duplicates and replays.
local repetitions = 0
if ARGV[10] ~= '' then
  local count = partition.loops .. ARGV[10]
  repetitions = redis.call('INCR', count)
  if repetitions == 1 then redis.call('PEXPIRE', count, terms.windowMs) end
  if repetitions >= terms.refuseAt then
    -- The count would last for longer if Redis' clock was set back.
    if redis.call('PTTL', count) > terms.windowMs then redis.call('PEXPIRE', count, terms.windowMs) end
    return {'loop', callId, now, repetitions, redis.call('PTTL', count)}
  end
end
for budget = 0, budgets - 1 do
  local index = firstBudget + budget * 6
  takeBudget(ARGV[index], cost, ARGV[index + 4], ARGV[index + 5])
end
if runsAgain then
  fence = redis.call('HGET', key, 'fence')
  -- Redis refuses this write when its memory is full. After a DEL, it would accept all others.
  redis.call('HSET', key, 'state', 'inflight')
  redis.call('DEL', key)
  remove_dead_letter({partition.base}, {callId})
end

local duplicate = false
if shadow then
  local first = redis.call('GET', slot)
  local fields = first and redis.call('HMGET', partition.records .. first, 'state', 'paramsDigest', 'freeAtMs', 'ended') or {}
  if fields[4] then fields[2] = endedFields(fields[4]).paramsDigest end
  duplicate = not isFree(fields[1], fields[3], now) and fields[1]
  -- A moved call succeeded. Its parameters are in its segment, and are taken as equal.
  if first and not fields[1] and segment_of({partition.base}, {first}) then duplicate, fields[2] = 'done', paramsDigest end
  if terms.slot == 'shadow-inflight' and duplicate ~= 'inflight' then duplicate = false end
  if duplicate and fields[2] ~= paramsDigest then duplicate = 'conflict' end
  if not duplicate then redis.call('SET', slot, callId, 'PX', retentionMs) end
end
-- An idle worker gets the call at once, and the attempt starts here. A call that must not start twice starts when its worker begins the
-- attempt, because the message may get lost.
local kept = terms.kept and partition.mayKeepJob() and '1' or '0'
local jobId = callId .. '.' .. generation
local approval = firstBudget + budgets * 6
local worker = not ARGV[approval] and not startAt and idle_worker({queue}, {need}) or nil
local _, circuitState, circuit = circuitOf(partition.circuits, circuitName)
-- A name with a line break would break the message's format.
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
-- Redis refuses this first write when its memory is full. After one that it accepts, it would accept all others.
redis.call('HSET', key, unpack(fields))
if stale then redis.call('HDEL', key, 'sameAs', 'sameRequest') end
-- Only the fence of a flushed call is left, with an expiry: it goes on counting, and the record must not expire.
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
-- Counts the tool's calls, by the part of the retention in which they were claimed. The counts of a part expire.
deferCount(partition.sizes .. text(math.floor(now * 24 / retentionMs)), terms.tool, 2 * retentionMs)
local sessionCalls = partition.sessions .. terms.session
for _, index in ipairs({partition.calls, sessionCalls}) do
  -- A call that runs again moves to the front. A long index is not searched, and has it twice for a while.
  if runsAgain and redis.call('LLEN', index) <= MAX_SEARCHED then redis.call('LREM', index, 1, callId) end
  deferWrite('LPUSH', index, callId)
end
deferExpire(sessionCalls, retentionMs)
if startAt then
  -- The indexes drop calls by the time of the claim, which is long ago when a delayed call starts.
  local delayed = partition.calls .. ':delayed:' .. terms.session
  redis.call('ZREMRANGEBYSCORE', delayed, '-inf', text(now))
  deferWrite('ZADD', delayed, text(startAt), callId)
  deferExpire(delayed, startAt - now + retentionMs)
end
if merging then
  -- A decision may take longer than an outcome is kept.
  local decidedMs = ARGV[approval] and math.max(0, ARGV[approval + 3] - now) or 0
  redis.call('SET', slot, callId, 'PX', text(retentionMs + decidedMs))
end
-- Pruning on every 16th millisecond keeps the indexes bounded.
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
  local attempt = begins and {text(fence), request, ARGV[8], circuitName, circuit} or {'', '', '', '', ''}
  push({queue}, {worker, jobId, terms.job, ARGV[9], kept, generation, token, unpack(attempt)})
end
if ARGV[12] ~= '' then records[#records + 1] = ARGV[12] end
-- Most claims end here. Each value of an answer costs its reader time.
if not duplicate and repetitions == 0 then return {'claimed'} end
return {'claimed', callId, now, duplicate, repetitions}
