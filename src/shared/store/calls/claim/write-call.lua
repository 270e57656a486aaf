-- Writes the record of a new call, and its approval if it waits for one.
--
-- KEYS  the table of claim-batch.lua
-- ARGV  the table of claim.lua, which gets `worker`, the idle worker that the call is for, and `attempt` when the attempt starts here
local partition, claim = KEYS, ARGV
local key, terms, generation, now, approval = claim.key, claim.terms, claim.generation, claim.now, claim.approval
local fence = claim.fence

-- An idle worker gets the call at once, and the attempt starts here. A call that must not start twice starts when its worker begins the
-- attempt, because the message may get lost.
claim.kept = terms.kept and partition.mayKeepJob() and '1' or '0'
local worker = not approval and not claim.startAt and idle_worker({partition.queue}, {terms.need}) or nil
local _, circuitState, circuit = circuitOf(partition.circuits, terms.circuit)
-- A name with a line break would break the message's format.
local begins = worker and circuitState == 'CLOSED' and not terms.once and not string.find(terms.circuit, '\n', 1, true)
local fields = {
  'state', 'inflight', 'phase', begins and 'running' or claim.startAt and 'delayed' or 'queued', 'generation', generation,
  'request', claim.request, 'paramsDigest', claim.paramsDigest, 'circuit', terms.circuit, 'inboxes', claim.inbox, 'createdAtMs', text(now)}
local function field(name, value) fields[#fields + 1], fields[#fields + 2] = name, value end
claim.worker, claim.token = worker, worker and worker.id .. ' ' .. generation
if begins then
  fence = (fence or claim.record.fence or 0) + 1
  claim.attempt = {text(fence), claim.request, claim.signature, terms.circuit, circuit}
  field('worker', worker.id)
  field('token', claim.token)
  field('startedAtMs', text(now))
  field('lockUntilMs', text(now + worker.leaseMs))
end
if claim.startAt then field('notBeforeMs', text(claim.startAt)) end
if fence then field('fence', text(fence)) end
if claim.signature ~= '' then field('signature', claim.signature) end
if terms.once then field('once', '1') end
if terms.callback then field('callback', '1') end
-- Redis refuses this first write when its memory is full. After one that it accepts, it would accept all others.
redis.call('HSET', key, unpack(fields))
if claim.isStale then redis.call('HDEL', key, 'sameAs', 'sameRequest') end
-- Only the fence of a flushed call is left, with an expiry: it goes on counting, and the record must not expire.
if claim.record.fence or claim.isStale then redis.call('PERSIST', key) end
if claim.params ~= '' then
  redis.call('HSET', key, 'paramsAt', claim.params)
  redis.call('PERSIST', claim.params)
end
if approval then await_approval({partition.base}, {claim.callId, generation, unpack(approval)}) end
