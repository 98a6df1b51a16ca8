-- Put what waits behind a long job back to the front of its queue, in order, unless the executor has made a round trip
-- since it was looked at: then it may have begun with what waited.
-- KEYS: claims, worker, worker executions, queues
-- ARGV: trip that was seen, job prefix, queue prefix, wip prefix, executions prefix, execution prefix, ids to leave...
-- Returns the ids that went back; false where it has.
local claims, worker, worker_executions, queues = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local job_prefix, queue_prefix, wip_prefix, executions_prefix, execution_prefix =
  ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

--@include front

if redis.call('HGET', worker, 'envq_trip') ~= ARGV[1] then
  return false
end
local left = {}
for i = 7, #ARGV do
  left[ARGV[i]] = true
end
local back = {}
local ids = redis.call('LRANGE', claims, 0, -1)
for i = #ids, 1, -1 do
  local id = ids[i]
  if not left[id] then
    redis.call('LREM', claims, -1, id)
    local job = job_prefix .. id
    if redis.call('TYPE', job).ok == 'hash' then
      to_front(id, job, redis.call('HGET', job, 'origin') or '')
      back[#back + 1] = id
    end
  end
end
return back
