-- Tries the commands of the other scripts, of BullMQ's and of the code on a key of its own.
--
-- KEYS  1 a key for trials
-- Returns the names of the commands that this user or server refuses, in lower case
local key = KEYS[1]
local tried = {
  {'DEL', key}, {'UNLINK', key}, {'EXISTS', key}, {'SET', key, '1'}, {'GET', key}, {'MGET', key},
  {'INCR', key}, {'INCRBY', key, '1'},
  {'PEXPIRE', key, '1000'}, {'PEXPIREAT', key, '1'}, {'PTTL', key}, {'PERSIST', key},
  {'HSET', key, 'f', '1'}, {'HMSET', key, 'f', '1'}, {'HSETNX', key, 'f', '1'}, {'HGET', key, 'f'}, {'HMGET', key, 'f'}, {'HGETALL', key}, {'HVALS', key},
  {'HLEN', key}, {'HRANDFIELD', key, '1'}, {'HEXISTS', key, 'f'}, {'HINCRBY', key, 'f', '1'}, {'HINCRBYFLOAT', key, 'f', '1'}, {'HDEL', key, 'f'},
  {'ZADD', key, '1', 'm'}, {'ZINCRBY', key, '1', 'm'}, {'ZSCORE', key, 'm'}, {'ZMSCORE', key, 'm'}, {'ZRANK', key, 'm'}, {'ZRANDMEMBER', key}, {'ZCARD', key},
  {'ZCOUNT', key, '1', '1'}, {'ZRANGE', key, '0', '-1'}, {'ZREVRANGE', key, '0', '-1'}, {'ZRANGEBYSCORE', key, '1', '1'}, {'ZREVRANGEBYSCORE', key, '1', '1'},
  {'ZPOPMIN', key}, {'ZREM', key, 'm'}, {'ZREMRANGEBYSCORE', key, '1', '1'}, {'ZREMRANGEBYRANK', key, '0', '-1'},
  {'SADD', key, 'm'}, {'SCARD', key}, {'SMEMBERS', key}, {'SRANDMEMBER', key}, {'SREM', key, 'm'},
  {'RPUSH', key, 'v'}, {'LPUSH', key, 'v'}, {'LINDEX', key, '0'}, {'LLEN', key}, {'LRANGE', key, '0', '1'}, {'LREM', key, '1', 'v'},
  {'LPOS', key, 'v'}, {'LTRIM', key, '0', '1'}, {'RPOPLPUSH', key, key}, {'RPOP', key}, {'LPOP', key},
  {'XADD', key, '*', 'f', '1'}, {'XRANGE', key, '-', '+'}, {'XREVRANGE', key, '+', '-'}, {'XDEL', key, '1-1'}, {'XTRIM', key, 'MAXLEN', '1'},
  {'TIME'}, {'PING'}, {'PUBSUB', 'NUMSUB'},
}
local refused = {}
for _, command in ipairs(tried) do
  local answer = redis.pcall(unpack(command))
  local words = type(answer) == 'table' and answer.err or ''
  -- A refusal by the type of the key shows that the command itself is allowed.
  local isRefused = words:find('permissions to run', 1, true) or words:find("can't run this command", 1, true)
    or words:find('nknown Redis command', 1, true)
  if isRefused then refused[#refused + 1] = command[1]:lower() end
end
redis.pcall('DEL', key)
return refused
