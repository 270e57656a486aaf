-- Settles a call: writes the outcome once, and notifies every producer that waits. Only the newest fence may.
--
-- KEYS  1, 2 bases of keys: of the partition, and of its home partition
-- ARGV  1 call ID  2 fence  3 outcome (JSON)  4 its signature, '' without keys  5 attempts  6 terms (JSON, `settleTerms`)
--       7 location of an outcome outside the record (JSON, `OutcomeLocation`), '' when the outcome is the third argument
-- Returns {code, now}: settled · fenced (a newer attempt holds the call) · ended (it already has its outcome) · gone
-- Fails with UNKEPT when the outcome does not exist at its location; nothing was written.
local base, callId, terms, location = KEYS[1], ARGV[1], decoded(ARGV[6]), ARGV[7] ~= '' and cjson.decode(ARGV[7])
local record, now = base .. RECORDS .. callId, nowMs()
local fields = redis.call('HMGET', record, 'state', 'fence', 'inboxes', 'version', 'paramsAt', 'generation', 'createdAtMs', 'paramsDigest',
  'signature', 'notBeforeMs', 'cancelRequested', 'approval', 'checkpoint', 'callback', 'attempts')
local attempts = ARGV[5]
if not fields[1] then return {'gone', now} end
if fields[1] ~= 'inflight' then return {'ended', now} end
if (fields[2] or '0') ~= ARGV[2] then return {'fenced', now} end

-- One time for all: the record and what it refers to must expire together, and Redis' clock may advance between two commands.
local expiresAt = text(now + terms.ttlMs)
if location and redis.call('EXISTS', location.key) == 0 then error('UNKEPT: the text of an outcome does not exist') end
local written = {location and 'outcomeAt' or 'outcome', location and location.key or ARGV[3], 'state', terms.state}
local dropped = {'phase', 'inboxes', 'lockUntilMs', 'worker', 'token'}
local function field(name, value) written[#written + 1], written[#written + 2] = name, value end
local function drop(name, exists) if exists then dropped[#dropped + 1] = name end end
-- The record of a success never changes again, so its fields are packed into one. A call with an approval keeps them, for its signature.
local version, isPacked = text((fields[4] or 1) + 1), terms.state == 'done' and fields[2] and not fields[12] and string.find(fields[6] or '', '^%d+$')
if isPacked then
  local ended, isComplete = endedText(fields[6], fields[7], now, fields[2], version, fields[8], attempts)
  field('ended', ended)
  if isComplete then attempts = nil end
  dropped = {'phase', 'inboxes', 'lockUntilMs', 'worker', 'token', 'generation', 'createdAtMs', 'startedAtMs', 'fence', 'paramsDigest'}
  drop('version', fields[4])
  drop('signature', fields[9] and terms.dropsSignature)
  drop('circuit', terms.plainCircuit)
else
  field('updatedAtMs', text(now))
  field('version', version)
end
if attempts then field('attempts', attempts) end
drop('attempts', fields[15] and not attempts)
drop('notBeforeMs', fields[10])
drop('cancelRequested', fields[11])
drop('checkpoint', fields[13])
if ARGV[4] ~= '' then field('outcomeSignature', ARGV[4]) end
if terms.freeAfterMs then field('freeAtMs', text(now + terms.freeAfterMs)) end
if terms.retriable then field('retriable', '1') end
if location and location.reference then field('outcomeParts', location.reference) end
redis.call('HSET', record, unpack(written))
redis.call('HDEL', record, unpack(dropped))
redis.call('PEXPIREAT', record, expiresAt)
if fields[5] then redis.call('PEXPIREAT', fields[5], expiresAt) end
if location then redis.call('PEXPIREAT', location.key, expiresAt) end
deferWrite('ZREM', base .. INFLIGHT, callId)
if isUnresolved(terms.state, ARGV[3]) then redis.call('ZADD', base .. IN_DOUBT, expiresAt, callId) end
if terms.letterMs then add_dead_letter({base}, {callId, text(now), text(terms.letterMs)}) end
if fields[14] then
  add_callback({base}, {callId, terms.state, ARGV[3], ARGV[4], location and not location.reference and location.key,
    location and location.reference})
end
local sample = terms.sample
if sample then addSample(KEYS[2] .. CIRCUITS, KEYS[2] .. WINDOWS .. sample.circuit, sample, '1', now) end
if terms.refill then refillRetries(KEYS[2] .. RETRIES, terms.refill) end
local inlined = not location and #ARGV[3] <= tonumber(MAX_EVENT_OUTCOME_BYTES) and ARGV[3] or nil
notify(fields[3], base .. INBOXES, settledEvent(callId, terms.state, ARGV[4], inlined, now, location and location.textId))
return {'settled', now}
