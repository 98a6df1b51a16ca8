-- Settle the claims of an executor that will not end them: to the front of their queues, or to the settle list.
-- KEYS: claims, settle, executors, worker executions, queues
-- ARGV: executor, what ran (a job id, "" for nothing, "?" for unknown), why ("crash", "timeout", "stopped", "handback"),
--       detail, crashes allowed, job prefix, queue prefix, wip prefix, executions prefix, execution prefix, 1 if it is dead
-- Returns {id, "front" | "settle" | "gone"}... in the order of the claims.
local claims, settle, worker_executions, queues = KEYS[1], KEYS[2], KEYS[4], KEYS[5]
local running, why, detail, allowed = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local job_prefix, queue_prefix, wip_prefix = ARGV[6], ARGV[7], ARGV[8]
local executions_prefix, execution_prefix = ARGV[9], ARGV[10]
local dead = ARGV[11] == '1'

--@include front

local function to_settle(id, job, origin)
  forget_executions(id, origin)
  redis.call('HSET', job, 'envq_settle', cjson.encode({kind = why, detail = detail, worker = ARGV[1]}))
  redis.call('RPUSH', settle, id)
  return 'settle'
end

-- A failure callback may kill its process as well: whoever settles the job next must know.
local function settling_died(job, reason)
  local readable, fields = pcall(cjson.decode, reason)
  fields = readable and type(fields) == 'table' and fields or {}
  fields.deaths = (tonumber(fields.deaths) or 0) + 1
  redis.call('HSET', job, 'envq_settle', cjson.encode(fields))
end

-- Of a batch of which nobody knows what ran, each job runs again, alone; only then it counts.
local doubtful = false

local function settle_one(id)
  local job = job_prefix .. id
  if redis.call('TYPE', job).ok ~= 'hash' then
    return 'gone'
  end
  local status, origin = unpack(redis.call('HMGET', job, 'status', 'origin'))
  local ran = id == running or (running == '?' and status == 'started')
  local reason = redis.call('HGET', job, 'envq_settle')
  if reason then
    if ran then
      settling_died(job, reason)
    end
    redis.call('RPUSH', settle, id)
    return 'settle'
  end
  local once = redis.call('HGET', job, 'envq_on_crash') == 'fail'
  if not ran or (why == 'handback' and not once) then
    return to_front(id, job, origin or '')
  end
  if why == 'timeout' or why == 'stopped' then
    return to_settle(id, job, origin or '')
  end
  if doubtful and not once then
    redis.call('HSET', job, 'envq_alone', 1)
    return to_front(id, job, origin or '')
  end
  local crashes = (tonumber(redis.call('HGET', job, 'envq_crashes') or '0') or 0) + 1
  redis.call('HSET', job, 'envq_crashes', crashes)
  if crashes > allowed or once then
    return to_settle(id, job, origin or '')
  end
  return to_front(id, job, origin or '')
end

local ids = redis.call('LRANGE', claims, 0, -1)
if running == '?' then
  local begun = 0
  for _, id in ipairs(ids) do
    begun = begun + (redis.pcall('HGET', job_prefix .. id, 'status') == 'started' and 1 or 0)
  end
  doubtful = begun > 1
end
local settled = {}
for i = #ids, 1, -1 do
  redis.call('LREM', claims, -1, ids[i])
  settled[i] = {ids[i], settle_one(ids[i])}
end
if dead then
  redis.call('DEL', KEYS[4])
  redis.call('ZREM', KEYS[3], ARGV[1])
end
return settled
