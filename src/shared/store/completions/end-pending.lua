-- Ends a pending call, or one whose attempt still runs, with an outcome.
--
-- KEYS  1, 2 bases of keys, as settle takes them
-- ARGV  as settle takes them
-- Returns what settle returns
local record = KEYS[1] .. RECORDS .. ARGV[1]
local settled = settle(KEYS, ARGV)
if settled[1] == 'settled' then
  redis.call('HDEL', record, 'pendingUntilMs', 'pendingNumber', 'onExpiry')
  redis.call('ZREM', KEYS[1] .. PENDING, ARGV[1])
end
return settled
