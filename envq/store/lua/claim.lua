-- Take jobs: what lies in the executor's claims and it does not know of, then what must be settled,
-- then the queues in order. Ids are moved, never popped and written.
-- KEYS: claims, generation, suspended, settle, executors, queue...
-- ARGV: executor, jobs wanted, job key prefix, queue key prefix, ids held...
-- Returns {generation, suspended, {id, hash}...}
local claims, settle = KEYS[1], KEYS[4]
local job_prefix, queue_prefix = ARGV[3], ARGV[4]
local suspended = redis.call('EXISTS', KEYS[3])
-- Suspended: also what a blocking move brought goes back.
local wanted = suspended == 1 and 0 or tonumber(ARGV[2])

local time = redis.call('TIME')
redis.call('ZADD', KEYS[5], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[1])

local held = {}
for i = 5, #ARGV do
  held[ARGV[i]] = true
end

-- Anybody can push an id under which something else is stored; that must not stop a queue.
local function field(id, name)
  local value = redis.pcall('HGET', job_prefix .. id, name)
  return type(value) == 'string' and value or nil
end

local found = {}
local function take(id)
  local hash = redis.pcall('HGETALL', job_prefix .. id)
  if hash.err or #hash == 0 or field(id, 'status') == 'canceled' then
    redis.call('LREM', claims, 1, id)  -- deleted or cancelled while it waited
  else
    found[#found + 1] = {id, hash}
  end
end

-- A reply that never arrived, or a blocking move, left these here.
local unknown = {}
for _, id in ipairs(redis.call('LRANGE', claims, 0, -1)) do
  if not held[id] then
    unknown[#unknown + 1] = id
  end
end
if #unknown > 1 then
  local rank = {}
  for i = 6, #KEYS do
    rank[KEYS[i]] = i
  end
  local place = {}
  for i, id in ipairs(unknown) do
    local origin = field(id, 'origin') or ''
    place[id] = (rank[queue_prefix .. origin] or 0) * 1000000 + i
  end
  table.sort(unknown, function(a, b) return place[a] < place[b] end)
end
for _, id in ipairs(unknown) do
  if #found < wanted then
    take(id)
  end
end
for i = #unknown, 1, -1 do
  local id, kept = unknown[i], false
  for _, claim in ipairs(found) do
    kept = kept or claim[1] == id
  end
  if not kept and redis.call('LREM', claims, 1, id) == 1 then
    if field(id, 'envq_settle') then
      redis.call('RPUSH', settle, id)
    else
      redis.call('LPUSH', queue_prefix .. (field(id, 'origin') or ''), id)
    end
  end
end

for i = 4, #KEYS do
  if i ~= 5 then
    while #found < wanted do
      local id = redis.call('LMOVE', KEYS[i], claims, 'LEFT', 'RIGHT')
      if not id then
        break
      end
      take(id)
    end
  end
end

return {redis.call('GET', KEYS[2]) or '', suspended, unpack(found)}
