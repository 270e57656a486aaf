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
--       last, for a call that waits for its approval: the arguments of await_approval
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
local partition, now = KEYS, nowMs()
local terms = decoded(ARGV[2])
local slotId, naming = string.match(ARGV[3], '^([^\n]*)\n(.*)$')
local claim = {
  ownId = ARGV[1], terms = terms, slot = partition.merges .. (slotId or ARGV[3]), naming = naming, inbox = ARGV[4], paramsDigest = ARGV[5],
  request = ARGV[6], generation = ARGV[7], signature = ARGV[8], jobData = ARGV[9], countId = ARGV[10], params = ARGV[11], cost = ARGV[14],
  budgets = {}, now = now, startAt = terms.startAt and terms.startAt > now and terms.startAt or nil,
  sessionCalls = partition.sessions .. terms.session,
  -- The call that has the outcome: this one, or the one into which it was merged (find_call).
  callId = ARGV[1], key = partition.records .. ARGV[1], record = {}, runsAgain = false, isStale = false}
for index = 15, 14 + ARGV[13] * 6, 6 do
  claim.budgets[#claim.budgets + 1] = {
    key = ARGV[index], limits = {unpack(ARGV, index + 1, index + 3)}, ttlMs = ARGV[index + 4], window = ARGV[index + 5]}
end
local approval = 15 + #claim.budgets * 6
if ARGV[approval] then claim.approval = {unpack(ARGV, approval)} end

-- All claims of a step share this table.
local step = terms.step
if step and step.holds == nil then
  local isDriven = tonumber(redis.call('HGET', step.record, 'fence')) == step.fence
  step.holds = isDriven and redis.call('HEXISTS', step.record, 'step:' .. step.number) == 1
end
if step and not step.holds then return {'stale', claim.callId, now} end

local answer = find_call(partition, claim) or answer_repeated(partition, claim) or admit_call(partition, claim)
if answer then return answer end
if claim.runsAgain then
  claim.fence = redis.call('HGET', claim.key, 'fence')
  -- Redis refuses this write when its memory is full. After a DEL, it would accept all others.
  redis.call('HSET', claim.key, 'state', 'inflight')
  redis.call('DEL', claim.key)
  remove_dead_letter({partition.base}, {claim.callId})
end
local duplicate = find_duplicate(partition, claim)
write_call(partition, claim)
index_call(partition, claim)
enqueue_call(partition, claim)
if ARGV[12] ~= '' then records[#records + 1] = ARGV[12] end
-- Most claims end here. Each value of an answer costs its reader time.
if not duplicate and claim.repetitions == 0 then return {'claimed'} end
return {'claimed', claim.callId, now, duplicate, claim.repetitions}
