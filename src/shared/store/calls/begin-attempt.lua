-- Starts an attempt: takes the next fence, unless the call has ended, belongs to another generation, or its circuit is not closed.
--
-- KEYS  1 record  2 circuits
-- ARGV  1 generation  2 worker ID  3 lease, ms  4 circuit epoch under which the worker holds the probe, or ''
--       5 token of this attempt: a script that runs twice, because its first answer was lost, starts one attempt
--       6 '0' to refuse a call that lost an attempt before: the worker already runs such a call
--       7 key prefix of inboxes: followers of the call are notified that an attempt begins
--       8 call ID
--       9 '1' when a lost answer is not requested again: a call that must not start twice is not started then
--       10 key prefix of the index of lost workers  11 '1' when the worker runs only this call
-- Returns {code, now, …}:
--   started    fence, request, signature, attempts, lost attempts, '1' when the attempt before this one left no record and is not
--              resolved,
--              first start, circuit's name, the circuit as stored, '1' when cancellation is requested, approval ID or '',
--              resolution or '', '1' when the call is poison, the last checkpoint with its signature or false
--   circuit    the circuit as stored, its name, request, signature, fence so far, attempts, resolution: nothing was written
--   ended      state: the call has its outcome
--   stale      the job is not the record's (older generation, or the record is gone)
--   early      ms: the call, or its next attempt, is not due yet
--   awaiting   approval ID: a person has not decided yet
--   pending    ms until it expires, rule of the expiry, request, signature, fence, attempts, resolution: an outside system completes it
--   apart      nothing was written: the worker must start the attempt in a script of its own
--   suspect    '1' when the attempt before this one left no record, request, '1' when the call must run alone, fence so far: an attempt
--              of the call was lost before, and the worker refuses a second such call: nothing was written
--
-- A call is blamed for each worker that was lost while it ran there, unless that worker was stopped, or lives and says that Redis did not
-- answer it (records/excuse-attempt.lua). Blamed for two, it runs alone. When a worker that runs nothing else is lost in the tool's code,
-- that is one proof; before that code, a tenth of one. Each worker that was lost recently without the call raises the number of proofs by
-- one, up to five. A checkpoint raises it by two: the call made progress before.
local MAX_BLAMED, IN_CODE, BEFORE_CODE, MAX_PROOFS, LOST_TTL_MS = 2, 10, 1, 5, 600000
local now = nowMs()
local fields = redis.call('HMGET', KEYS[1], 'state', 'phase', 'generation', 'fence', 'request', 'circuit', 'notBeforeMs', 'cancelRequested',
  'signature', 'followed', 'approval', 'resolution', 'outcome', 'outcomeAt', 'once', 'ended')
-- Only earlier attempts leave these fields.
local earlier = fields[4] and redis.call('HMGET', KEYS[1], 'attempts', 'lost', 'firstStartedAtMs', 'startedAtMs', 'worker', 'token', 'blamed', 'alone',
  'lostAlone', 'checkpoint', 'excused', 'poison') or {}
if fields[16] then fields[3] = endedFields(fields[16]).generation end
local state, phase, fence, attempts, lost = fields[1], fields[2], tonumber(fields[4] or 0), earlier[1] or '', tonumber(earlier[2] or 0)
if not state or fields[3] ~= ARGV[1] then return {'stale', now} end
-- A record that has an outcome has ended, whatever its state says: any writer can change that.
if state ~= 'inflight' or fields[13] or fields[14] then return {'ended', now, state} end
if phase == 'awaiting-approval' then return {'awaiting', now, fields[11] or ''} end
if phase == 'pending' then
  local untilMs, rule = unpack(redis.call('HMGET', KEYS[1], 'pendingUntilMs', 'onExpiry'))
  return {'pending', now, (untilMs or now) - now, rule or 'fail', fields[5], fields[9] or '', fence, attempts, fields[12] or ''}
end
if fields[15] and ARGV[9] == '1' then return {'apart', now} end
if fields[7] then
  local earlyMs = tonumber(fields[7]) - now
  if phase == 'waiting-retry' and earlyMs > 5 or phase == 'delayed' and earlyMs > 0 then return {'early', now, earlyMs} end
end

-- An attempt that left no record is recovered also while the circuit is open: its outcome must be decided first.
local leftNoRecord = phase == 'running' and earlier[6] ~= ARGV[5]
-- The outcome is still undecided when its worker released the call, or sends the script again after a lost answer.
local undecided = leftNoRecord
  or ((phase == 'queued' or phase == 'running') and lost > 0 and attempts:find('"status":"lost"[^\n]*\n$') ~= nil)
if phase == 'running' and not leftNoRecord then fence = fence - 1 end
local worker, blamed, lostAlone = earlier[5] or '', tonumber(earlier[7] or 0), tonumber(earlier[9] or 0)
local isBlamed = leftNoRecord and earlier[11] ~= fields[4] and redis.call('EXISTS', ARGV[10] .. ':stopped:' .. worker) == 0
if isBlamed then
  blamed = blamed + 1
  if earlier[8] == fields[4] then lostAlone = lostAlone + BEFORE_CODE end
  if earlier[8] == fields[4] .. '!' then lostAlone = lostAlone + IN_CODE end
end
-- The workers that were lost recently without this call.
local function lostWithoutCall()
  local others = 0
  for _, other in ipairs(redis.call('ZRANGEBYSCORE', ARGV[10], now - LOST_TTL_MS, '+inf')) do
    if other ~= worker and not attempts:find(other, 1, true) then others = others + 1 end
  end
  return others
end
-- Only a loss decides. Later, the other lost workers are forgotten, which proves nothing.
local isPoison = earlier[12] == '1' or (isBlamed and lostAlone >= IN_CODE
  and lostAlone >= IN_CODE * math.min(MAX_PROOFS, 1 + lostWithoutCall() + (earlier[10] and 2 or 0)))
if ARGV[6] == '0' and (leftNoRecord or lost > 0) then
  return {'suspect', now, leftNoRecord and '1' or '0', fields[5], blamed >= MAX_BLAMED and not isPoison and '1' or '0', fence}
end
local epoch, circuitState, raw = circuitOf(KEYS[2], fields[6])
if circuitState ~= 'CLOSED' and ARGV[4] ~= epoch and not undecided then
  return {'circuit', now, raw, fields[6], fields[5], fields[9] or '', fence, attempts, fields[12] or ''}
end

if leftNoRecord then
  lost = lost + 1
  attempts = attempts .. '{"fence":' .. fence .. ',"worker":' .. cjson.encode(earlier[5] or '')
    .. ',"startedAtMs":' .. (earlier[4] or now) .. ',"finishedAtMs":' .. now .. ',"status":"lost","retriable":false}\n'
end
-- The first start gets a field of its own when there is a second one.
local firstStartedAtMs = earlier[3] or earlier[4] or now
redis.call('HSET', KEYS[1], 'phase', 'running', 'fence', text(fence + 1), 'worker', ARGV[2], 'token', ARGV[5], 'startedAtMs', text(now),
  'lockUntilMs', text(now + ARGV[3]))
if earlier[4] and not earlier[3] then redis.call('HSET', KEYS[1], 'firstStartedAtMs', firstStartedAtMs) end
if leftNoRecord then redis.call('HSET', KEYS[1], 'attempts', attempts, 'lost', lost) end
if isBlamed then
  redis.call('HSET', KEYS[1], 'blamed', blamed, 'lostAlone', lostAlone, 'poison', isPoison and '1' or '0')
  redis.call('ZADD', ARGV[10], now, worker)
  redis.call('ZREMRANGEBYSCORE', ARGV[10], '-inf', now - LOST_TTL_MS)
  redis.call('PEXPIRE', ARGV[10], LOST_TTL_MS)
end
if ARGV[11] == '1' then redis.call('HSET', KEYS[1], 'alone', text(fence + 1)) end
if fields[10] then
  notify(redis.call('HGET', KEYS[1], 'inboxes'), ARGV[7], {'{"type":"attempt","callId":"', ARGV[8], '"}'})
end
return {'started', now, fence + 1, fields[5], fields[9] or '', attempts, lost, undecided and '1' or '0', firstStartedAtMs, fields[6], raw, fields[8] or '0',
  fields[11] or '', fields[12] or '', isPoison and '1' or '0', earlier[10]}
