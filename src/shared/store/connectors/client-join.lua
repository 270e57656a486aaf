-- Registers a client for calls of its tools, until its lease ends.
--
-- KEYS  1 client
-- ARGV  1 client ID  2 prefix of all keys of clients  3 lease, ms  4 TTL of a tool's set of clients, ms  5… tools
-- Returns {1}
local now = nowMs()
local tools = {}
for position = 5, #ARGV do
  tools[position - 4] = ARGV[position]
  local clients = ARGV[2] .. 'tool:' .. ARGV[position]
  redis.call('ZREMRANGEBYSCORE', clients, '-inf', now)
  redis.call('ZADD', clients, now + ARGV[3], ARGV[1])
  redis.call('PEXPIRE', clients, ARGV[4])
end
redis.call('HSET', KEYS[1], 'tools', table.concat(tools, ' '), 'leaseMs', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1}
