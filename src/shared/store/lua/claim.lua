-- Claims a call for the first who asks and puts its job into the queue, in one step: a claim without a job cannot exist.
-- Everybody else learns what became of the call, and is told when it settles.
--
-- KEYS  1 record  2 merge slot (or the record again)  3 in-flight index  4 index of all calls  5 index of the session's calls
--       6 count of the session's calls with this tool and these parameters  7 circuits
-- ARGV  1 call ID  2 '1' when a merge slot is used; '2' shadow mode: tell what a call with the slot's key would have met, '3' or one
--         with its parameters while it was in flight  3 key prefix of records  4 producer's inbox ID, '' when nobody waits
--       5 dedupe mode  6 parameter digest  7 request (JSON)  8 generation  9 circuit's name  10 index retention, ms  11 signature
--       12 '1' for a call that must not start twice  13 key prefix of the queue  14 to 19 the job, as enqueue takes it
--       20 approval to wait for (JSON), '' for none  21 its signature  22 its ID  23 key prefix of approvals  24 when it expires
--       25 count at which the call is refused, '' counts nothing  26 how long is counted, ms
--       27 key prefix of how many calls of each tool there are  28 tool
--       29 calls in flight at which the tier takes no more like it, '' for no bound  30, 31 line and session of the job, as enqueue takes
--       them  32 number of budgets  33 what the call costs
--       34.. of each budget: key, most calls, cost units and time, ms ('' for no bound), how long it is kept, ms, '1' when that is
--         from its first call on
--       and behind all of them, where the large parameters of the request are kept, '' for none, and what the audit trail is told of a
--       call that is new, '' for nothing
-- Returns {code, call ID, now, …}:
--   claimed    duplicate count  a new record, queued or pushed; in shadow mode, the state of what it would have met, or 'conflict';
--                               how often the session made this very call
--   loop       count ms         it made it too often; nothing was written but the count, which starts anew in so many ms
--   overloaded in flight        the tier takes no more of its importance; nothing was written
--   spent      budget unit spent ms  a budget is spent (counted from 0; 1 calls, 2 cost units, 3 time), and is full again in so many
--                               ms; nothing was written
--   inflight   phase createdAt  somebody else's call runs; an enforced caller has been added to those who are told
--   done | failed | cancelled   outcome (JSON), settledAt, the outcome's signature, where a large outcome is, its reference
--   conflict                    the key was used with other parameters; nothing was written
-- Fails with UNKEPT when the large parameters are not there; nothing was written.
local callId, merging, recordPrefix, inbox, mode = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4], ARGV[5]
local now = nowMs()

local function read(key)
  local fields = redis.call('HMGET', key, 'state', 'paramsDigest', 'phase', 'createdAtMs', 'outcome', 'updatedAtMs', 'retriable', 'inboxes', 'sameAs', 'request',
    'outcomeSignature', 'fence', 'outcomeAt', 'outcomeParts')
  return {
    exists = fields[1] or fields[9], state = fields[1], paramsDigest = fields[2], phase = fields[3], createdAtMs = fields[4],
    outcome = fields[5], updatedAtMs = fields[6], retriable = fields[7] == '1', inboxes = fields[8], sameAs = fields[9],
    request = fields[10], signature = fields[11], fence = fields[12], outcomeAt = fields[13], outcomeParts = fields[14],
  }
end

local key, fence, anew = KEYS[1], nil, false
-- Most often nothing is there.
local record = redis.call('EXISTS', key) == 1 and read(key) or {}
-- This request was merged into another call before: it stays that call.
if record.sameAs then
  local leaderKey = recordPrefix .. record.sameAs
  local leading = read(leaderKey)
  if leading.exists then
    callId, key, record = record.sameAs, leaderKey, leading
  else
    redis.call('DEL', KEYS[1])
    record = read(KEYS[1])
  end
end

if not record.exists and merging then
  local leader = redis.call('GET', KEYS[2])
  if leader then
    local leaderKey = recordPrefix .. leader
    local leading = read(leaderKey)
    if leading.state == 'inflight' then
      if mode == 'enforced' then
        redis.call('HSET', KEYS[1], 'sameAs', leader)
        redis.call('PEXPIRE', KEYS[1], ARGV[10])
      end
      callId, key, record = leader, leaderKey, leading
    end
  end
end

if record.exists then
  if record.paramsDigest ~= ARGV[6] then return {'conflict', callId, now} end
  if record.state == 'inflight' then
    -- The first answer was lost on the way and the script came again: this is the caller's own call.
    local own = record.request == ARGV[7]
    if own then
      redis.call('HSET', key, 'inboxes', withInbox(record.inboxes, inbox))
      return {'claimed', callId, now}
    end
    if mode == 'enforced' then redis.call('HSET', key, 'inboxes', withInbox(record.inboxes, inbox)) end
    return {'inflight', callId, now, record.phase, record.createdAtMs}
  end
  local again = record.state == 'failed' and record.retriable and mode == 'bestEffort'
  if not again then return {record.state, callId, now, record.outcome, record.updatedAtMs, record.signature or '', record.outcomeAt, record.outcomeParts} end
  -- It runs anew: under its own name if it had been merged, and with the fences counted on, so that stragglers stay refused.
  callId, key = ARGV[1], KEYS[1]
  anew = true
end

if ARGV[29] ~= '' then
  local inflight = cardinality(KEYS[3])
  if inflight >= tonumber(ARGV[29]) then return {'overloaded', callId, now, inflight} end
end
local budgets, cost, firstBudget = tonumber(ARGV[32]), ARGV[33], 34
for budget = 0, budgets - 1 do
  local at = firstBudget + budget * 6
  local unit, used = lackOf(ARGV[at], cost, {unpack(ARGV, at + 1, at + 3)})
  if unit then return {'spent', callId, now, budget, unit, used, redis.call('PTTL', ARGV[at])} end
end

local params = ARGV[firstBudget + budgets * 6]
if params ~= '' and redis.call('EXISTS', params) == 0 then error('UNKEPT: the large parameters are not there') end

-- Only what would run is counted: duplicates that are merged and replays do nothing.
local repetitions = 0
if ARGV[25] ~= '' then
  repetitions = redis.call('INCR', KEYS[6])
  if repetitions == 1 then redis.call('PEXPIRE', KEYS[6], ARGV[26]) end
  if repetitions >= tonumber(ARGV[25]) then return {'loop', callId, now, repetitions, redis.call('PTTL', KEYS[6])} end
end
for budget = 0, budgets - 1 do
  local at = firstBudget + budget * 6
  takeFrom(ARGV[at], cost, ARGV[at + 4], ARGV[at + 5])
end
if anew then
  fence = redis.call('HGET', key, 'fence')
  redis.call('DEL', key)
end

local duplicate = false
if ARGV[2] == '2' or ARGV[2] == '3' then
  local first = redis.call('GET', KEYS[2])
  local met = first and redis.call('HMGET', recordPrefix .. first, 'state', 'paramsDigest') or {}
  duplicate = met[1]
  if ARGV[2] == '3' and duplicate ~= 'inflight' then duplicate = false end
  if duplicate and met[2] ~= ARGV[6] then duplicate = 'conflict' end
  if not duplicate then redis.call('SET', KEYS[2], callId, 'PX', ARGV[10]) end
end
-- A worker that has nothing to do gets the call at once, and its attempt has begun. A call that must not start twice begins when the
-- worker asks for it: the message may get lost.
local job = {unpack(ARGV, 14, 19)}
local worker = ARGV[20] == '' and idle_worker({ARGV[13]}, {}) or nil
local _, circuitState, circuit = circuitOf(KEYS[7], ARGV[9])
local begins = worker and circuitState == 'CLOSED' and ARGV[12] ~= '1'
local fields = {
  'state', 'inflight', 'phase', begins and 'running' or 'queued', 'generation', ARGV[8], 'request', ARGV[7], 'signature', ARGV[11],
  'paramsDigest', ARGV[6], 'circuit', ARGV[9], 'inboxes', inbox, 'createdAtMs', now, 'version', 1}
local function field(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
local token = worker and worker.id .. ' ' .. job[1]
if begins then
  fence = (fence or record.fence or 0) + 1
  field('worker', worker.id)
  field('token', token)
  field('startedAtMs', now)
  field('lockUntilMs', now + worker.leaseMs)
end
if fence then field('fence', fence) end
if ARGV[12] == '1' then field('once', '1') end
-- The first write is one that Redis refuses when its memory is full: after any other, all of them would pass.
redis.call('HSET', key, unpack(fields))
-- Nothing of a flushed call is left but its fence, which goes on counting and expires no more.
if record.fence then redis.call('PERSIST', key) end
if params ~= '' then
  redis.call('HSET', key, 'paramsAt', params)
  redis.call('PERSIST', params)
end
if ARGV[20] ~= '' then
  local approvals, id = ARGV[23], ARGV[22]
  redis.call('HSET', key, 'phase', 'awaiting-approval', 'approval', id)
  redis.call('HSET', approvals .. ':' .. id, 'state', 'pending', 'request', ARGV[20], 'signature', ARGV[21], 'generation', ARGV[8],
    'expiresAtMs', ARGV[24])
  redis.call('PEXPIREAT', approvals .. ':' .. id, ARGV[24] + ARGV[10])
  redis.call('ZADD', approvals .. 's', now, id)
  redis.call('ZADD', approvals .. 's:pending', ARGV[24], id)
  redis.call('ZREMRANGEBYSCORE', approvals .. 's', '-inf', now - 2 * ARGV[10])
end
later('ZADD', KEYS[3], now, callId)
-- How many calls of a tool there are, by the part of the retention in which they were claimed: the parts expire, the count is kept.
countLater(ARGV[27] .. string.format('%.0f', math.floor(now * 24 / ARGV[10])), ARGV[28], 2 * ARGV[10])
later('ZADD', KEYS[4], now, callId)
later('ZADD', KEYS[5], now, callId)
keepLater(KEYS[5], ARGV[10])
if merging then redis.call('SET', KEYS[2], callId, 'PX', ARGV[10]) end
-- The indexes forget with the records: a few entries a claim keep them bounded.
if now % 16 == 0 then
  for index = 4, 5 do
    local expired = redis.call('ZRANGEBYSCORE', KEYS[index], '-inf', now - ARGV[10], 'LIMIT', 0, 256)
    if #expired > 0 then redis.call('ZREM', KEYS[index], unpack(expired)) end
  end
end
if not worker then
  job[7], job[8] = ARGV[30], ARGV[31]
  enqueue({ARGV[13]}, job)
else
  local begun = begins and {'started', now, fence, ARGV[7], ARGV[11], '', 0, '0', now, ARGV[9], circuit, '0', '', ''} or {'apart'}
  push({ARGV[13]}, {worker, job[1], job[2], job[3], job[4], job[5], job[6], token, begun})
end
local told = ARGV[firstBudget + budgets * 6 + 1]
if told ~= '' then records[#records + 1] = told end
return {'claimed', callId, now, duplicate, repetitions}
