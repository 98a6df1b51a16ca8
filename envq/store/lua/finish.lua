-- Store executions that succeeded, each only while its claim stands; RQ's record as RQ itself would write it.
-- KEYS: claims, worker, worker executions, events, settle
-- ARGV: executor, now as ISO text, events channel, event cap, job prefix, results prefix, wip prefix, finished prefix,
--       executions prefix, execution prefix, dependencies prefix, 1 if the executor is dead, then one msgpack array for each job:
--       {id, execution id, queue, started and ended as ISO text and as numbers, result TTL, registry score, result,
--        seconds, had fields of envq's, has dependencies, fields of its event, signature}
-- Returns for each job: 1 stored, 0 the claim is gone and nothing was written, -1 the job was deleted, 2 it has dependents,
-- or lies in other registries, and is left to RQ's own code: unstored and still claimed, or, of a dead executor, to be settled by another.
local claims, worker, worker_executions = KEYS[1], KEYS[2], KEYS[3]
local executor = ARGV[1]
local job_prefix, results_prefix, wip_prefix, finished_prefix = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local executions_prefix, execution_prefix, dependencies_prefix = ARGV[9], ARGV[10], ARGV[11]
local dead, FIRST = ARGV[12] == '1', 13

local outcomes, wip, finished, composites, hashes, told = {}, {}, {}, {}, {}, {}
local stored, seconds = 0, 0

local function among(lists, key)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  return list
end

-- What becomes of it: see the outcomes above.
local function store(id, execution, queue, started_at, ended_at, started, ended, ttl, score, result, signature)
  local job, results = job_prefix .. id, results_prefix .. id
  local new = redis.pcall('HSET', job, 'status', 'finished', 'started_at', started_at, 'ended_at', ended_at,
    'last_heartbeat', ended_at)
  if type(new) ~= 'number' then
    return -1
  elseif new == 4 or ttl == 0 then
    redis.call('DEL', job, results, dependencies_prefix .. id .. ':dependencies')
    return new == 4 and -1 or 1
  end
  local added
  if signature ~= '' then
    local entry = {'type', 1, 'worker_name', executor, 'execution_id', execution, 'execution_started_at', started,
      'execution_ended_at', ended, 'envq_signature', signature}
    if result ~= '' then
      entry[#entry + 1], entry[#entry + 2] = 'return_value', result
    end
    added = redis.pcall('XADD', results, 'MAXLEN', '~', 10, '*', unpack(entry))
  elseif result ~= '' then
    added = redis.pcall('XADD', results, 'MAXLEN', '~', 10, '*', 'type', 1, 'worker_name', executor, 'return_value', result,
      'execution_id', execution, 'execution_started_at', started, 'execution_ended_at', ended)
  else
    added = redis.pcall('XADD', results, 'MAXLEN', '~', 10, '*', 'type', 1, 'worker_name', executor,
      'execution_id', execution, 'execution_started_at', started, 'execution_ended_at', ended)
  end
  if type(added) == 'table' then
    redis.call('HSET', job, 'status', 'started')  -- something else lies there
    redis.call('RPUSH', claims, id)
    return 2
  end
  if ttl > 0 then
    redis.call('EXPIRE', results, ttl)
    redis.call('EXPIRE', job, ttl)
  else
    redis.call('PERSIST', results)
  end
  local members = among(finished, queue)
  members[#members + 1] = score
  members[#members + 1] = id
  return 1
end

local function settle(id, execution, started, ended, result)
  redis.call('LREM', claims, 1, id)
  redis.call('HSET', job_prefix .. id, 'envq_settle', cjson.encode({kind = 'finished', execution = execution,
    started = started, ended = ended, result = result}))
  redis.call('RPUSH', KEYS[5], id)
end

local function end_execution(id, execution, queue)
  local composite = id .. ':' .. execution
  redis.pcall('ZREM', executions_prefix .. id, execution)
  hashes[#hashes + 1] = execution_prefix .. composite
  composites[#composites + 1] = composite
  local members = among(wip, queue)
  members[#members + 1] = composite
end

-- Whoever deletes a job that was cancelled or enqueued again while it ran takes it out of where that put it.
local function is_left_to_rq(id, ttl)
  if redis.call('EXISTS', job_prefix .. id .. ':dependents') == 1 then
    return true
  end
  local status = ttl == 0 and redis.pcall('HGET', job_prefix .. id, 'status')
  return type(status) == 'string' and status ~= 'started'
end

for i = FIRST, #ARGV do
  local id, execution, queue, started_at, ended_at, started, ended, ttl, score, result, took, marked, depends, event, signature =
    unpack(cmsgpack.unpack(ARGV[i]))
  local outcome
  -- The claim goes before anything is written: that frees memory, and where it is gone somebody else answers for the job.
  if is_left_to_rq(id, ttl) then
    outcome = redis.call('LPOS', claims, id) and 2 or 0
  elseif redis.call('LREM', claims, 1, id) == 0 then
    outcome = 0
  else
    outcome = store(id, execution, queue, started_at, ended_at, started, ended, ttl, score, result, signature)
  end
  if outcome == 2 and dead then
    settle(id, execution, started, ended, result)
  elseif outcome == 1 then
    if marked then
      redis.call('HDEL', job_prefix .. id, 'envq_crashes', 'envq_settle', 'envq_alone', 'envq_expires')
    end
    if depends and ttl > 0 then
      redis.call('EXPIRE', dependencies_prefix .. id .. ':dependencies', ttl)
    end
    stored, seconds = stored + 1, seconds + took
    told[#told + 1] = event
  end
  if outcome == 1 or outcome == -1 or (outcome == 2 and dead) then
    end_execution(id, execution, queue)
  end
  outcomes[#outcomes + 1] = outcome
end

for queue, members in pairs(wip) do
  redis.pcall('ZREM', wip_prefix .. queue, unpack(members))
end
for queue, members in pairs(finished) do
  redis.pcall('ZADD', finished_prefix .. queue, unpack(members))
end
if #hashes > 0 then
  redis.call('DEL', unpack(hashes))
  redis.call('SREM', worker_executions, unpack(composites))
end
if stored > 0 then
  if redis.call('EXISTS', worker) == 1 then
    redis.call('HINCRBY', worker, 'successful_job_count', stored)
    redis.call('HINCRBYFLOAT', worker, 'total_working_time', string.format('%.6f', seconds))
  end
  local text = '{"kind":"job.finished","at":"' .. ARGV[2] .. '","worker":' .. cjson.encode(executor) .. ','
  if #told == 1 then
    text = text .. told[1] .. '}'
  else
    text = text .. '"jobs":[{' .. table.concat(told, '},{') .. '}]}'
  end
  redis.pcall('PUBLISH', ARGV[3], text)
  redis.pcall('XADD', KEYS[4], 'MAXLEN', '~', #told > 8 and ARGV[4] / 10 or ARGV[4], '*', 'event', text)
end
return outcomes
