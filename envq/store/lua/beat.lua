-- One sign of life of one executor, given by its supervisor; the server's clock counts.
-- KEYS: executors, executor, worker, worker executions, execution, job
-- ARGV: executor, now as ISO text, now as a number, executor TTL, worker TTL, execution TTL, how long it may be silent (ms)
-- Returns 1, or 0 where the executor must register again (its record expired or was flushed).
-- As in claim.lua: what needs no memory first, or at maxmemory all would be refused.
redis.call('ZREM', KEYS[1], '')
local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[7]), ARGV[1])
redis.call('EXPIRE', KEYS[4], ARGV[5])
if redis.call('EXISTS', KEYS[5]) == 1 then
  redis.call('HSET', KEYS[5], 'last_heartbeat', ARGV[3])
  redis.call('EXPIRE', KEYS[5], ARGV[6])
  if redis.call('EXISTS', KEYS[6]) == 1 then
    redis.call('HSET', KEYS[6], 'last_heartbeat', ARGV[2])
  end
end
if redis.call('EXPIRE', KEYS[2], ARGV[4]) == 0 or redis.call('EXISTS', KEYS[3]) == 0 then
  return 0
end
redis.call('HSET', KEYS[3], 'last_heartbeat', ARGV[2], 'envq_silence', ARGV[7])
redis.call('EXPIRE', KEYS[3], ARGV[5])
return 1
