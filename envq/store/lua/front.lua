-- Functions that several scripts share: a job goes back to where it came from.
-- Expects in scope: job_prefix, queue_prefix, wip_prefix, executions_prefix, execution_prefix,
-- worker_executions (key), queues (key).

-- Every execution of a job that RQ's record shows; with a worker's name only its own.
local function forget_executions(id, origin, only_of)
  for _, execution in ipairs(redis.pcall('ZRANGE', executions_prefix .. id, 0, -1)) do
    local composite = id .. ':' .. execution
    if not only_of or redis.call('HGET', execution_prefix .. composite, 'worker_name') == only_of then
      redis.call('DEL', execution_prefix .. composite)
      redis.call('ZREM', executions_prefix .. id, execution)
      redis.pcall('ZREM', wip_prefix .. origin, composite)
      redis.call('SREM', worker_executions, composite)
    end
  end
end

-- As it was before it was claimed: status, time to live, first in its queue.
local function to_front(id, job, origin)
  forget_executions(id, origin)
  redis.call('HSET', job, 'status', 'queued', 'started_at', '', 'worker_name', '')
  local expires = tonumber(redis.call('HGET', job, 'envq_expires') or '')
  if expires then
    redis.call('HDEL', job, 'envq_expires')
    redis.call('PEXPIREAT', job, expires)
  end
  redis.call('SADD', queues, queue_prefix .. origin)
  redis.call('LPUSH', queue_prefix .. origin, id)
  return 'front'
end
