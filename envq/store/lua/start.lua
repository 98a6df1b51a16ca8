-- Record in RQ's terms that a claimed job starts, if the claim still stands.
-- KEYS: claims, job, wip, executions, execution, worker executions, worker, events
-- ARGV: job id, execution id, executor, now as ISO text, now as a number, execution TTL, channel, event, event cap
-- Returns 1 started, 0 the claim is gone, -1 the job was deleted or cancelled (the claim is dropped).
local claims, job = KEYS[1], KEYS[2]
local id, execution = ARGV[1], ARGV[2]
local composite = id .. ':' .. execution

if not redis.call('LPOS', claims, id) then
  return 0
end
local status = redis.call('HGET', job, 'status')
if redis.call('EXISTS', job) == 0 or status == 'canceled' then
  redis.call('LREM', claims, 1, id)
  return -1
end
local ended = status == 'finished' or status == 'failed' or status == 'stopped'
local elsewhere = status == 'started' and redis.call('HGET', job, 'worker_name') ~= ARGV[3]
if (ended or elsewhere) and redis.call('HGET', job, 'envq_on_crash') == 'fail' then
  redis.call('LREM', claims, 1, id)  -- its id was pushed twice, by a repeated enqueue say, and it must not run twice
  return -1
end
-- A start whose reply was lost was never run.
for _, earlier in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  local lost = string.sub(KEYS[5], 1, #KEYS[5] - #execution) .. earlier
  if redis.call('HGET', lost, 'worker_name') == ARGV[3] then
    redis.call('DEL', lost)
    redis.call('ZREM', KEYS[4], earlier)
    redis.call('ZREM', KEYS[3], id .. ':' .. earlier)
    redis.call('SREM', KEYS[6], id .. ':' .. earlier)
  end
end
redis.call('HSET', job, 'status', 'started', 'started_at', ARGV[4], 'last_heartbeat', ARGV[4], 'worker_name', ARGV[3])
redis.call('PERSIST', job)
redis.call('HSET', KEYS[5], 'id', execution, 'job_id', id, 'created_at', ARGV[5], 'last_heartbeat', ARGV[5],
  'worker_name', ARGV[3])
redis.call('EXPIRE', KEYS[5], ARGV[6])
redis.call('ZADD', KEYS[4], '+inf', execution)
redis.call('ZADD', KEYS[3], '+inf', composite)
redis.call('SADD', KEYS[6], composite)
if redis.call('EXISTS', KEYS[7]) == 1 then
  redis.call('HSET', KEYS[7], 'state', 'busy')
end
-- Events fail open: neither a missing right nor full memory keeps a job from starting.
redis.pcall('PUBLISH', ARGV[7], ARGV[8])
redis.pcall('XADD', KEYS[8], 'MAXLEN', '~', ARGV[9], '*', 'event', ARGV[8])
return 1
