-- Take jobs and record in RQ's terms that they start: what lies in the executor's claims and it does not know of, then
-- what must be settled, then the queues in order. Ids are moved, never popped and written.
-- KEYS: claims, generation, suspended, settle, executors, worker, worker executions, events, queues, queue...
-- ARGV: executor, trip, jobs wanted, bytes wanted, execution id prefix, events channel, event cap, job prefix,
--       queue prefix, wip prefix, executions prefix, execution prefix, how long the executor may be silent (ms),
--       how many of the ids held are asked about, ids held...
-- Returns {generation, suspended, {ids asked about that are not claimed any more}, {ids that are no text and were refused},
--          {id, execution id, hash}...}
local claims, settle, worker, worker_executions, queues = KEYS[1], KEYS[4], KEYS[6], KEYS[7], KEYS[9]
local executor, bytes_wanted = ARGV[1], tonumber(ARGV[4])
local job_prefix, queue_prefix, wip_prefix, executions_prefix, execution_prefix =
  ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local FIRST_QUEUE, ASKED, FIRST_HELD = 10, 14, 15

--@include front

-- At maxmemory a script may only write if it has written what needs no memory first; draining the queues is the way out.
redis.call('LREM', claims, 1, '')

local suspended = redis.call('EXISTS', KEYS[3])
-- Suspended: also what a blocking move brought goes back.
local wanted = suspended == 1 and 0 or tonumber(ARGV[3])

local time = redis.call('TIME')
redis.call('ZADD', KEYS[5], time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[13]), executor)

-- The server's clock: this script may have been sent behind a move that blocked for a while.
-- From days to a date: Howard Hinnant's civil_from_days.
local function iso(seconds, microseconds)
  local days = math.floor(seconds / 86400)
  local rest, z = seconds - days * 86400, days + 719468
  local era = math.floor(z / 146097)
  local day_of_era = z - era * 146097
  local year_of_era = math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524)
    - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year_of_era + math.floor(year_of_era / 4) - math.floor(year_of_era / 100))
  local shifted = math.floor((5 * day_of_year + 2) / 153)
  local day = day_of_year - math.floor((153 * shifted + 2) / 5) + 1
  local month = shifted < 10 and shifted + 3 or shifted - 9
  local year = year_of_era + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day, math.floor(rest / 3600),
    math.floor(rest % 3600 / 60), rest % 60, microseconds)
end
local now_text = iso(tonumber(time[1]), tonumber(time[2]))
local now = string.format('%d.%06d', time[1], time[2])

local listed = redis.call('LRANGE', claims, 0, -1)
local standing, held, gone = {}, {}, {}
for _, id in ipairs(listed) do
  standing[id] = true
end
local last_asked = FIRST_HELD + tonumber(ARGV[ASKED]) - 1
for i = FIRST_HELD, #ARGV do
  held[ARGV[i]] = standing[ARGV[i]]  -- one that has just been stored may be there again, to run again
  if i <= last_asked and not standing[ARGV[i]] then
    gone[#gone + 1] = ARGV[i]
  end
end
local holds_others = last_asked - FIRST_HELD + 1 > #gone

-- Anybody can push an id under which something else is stored; that must not stop a queue.
local function field(id, name)
  local value = redis.pcall('HGET', job_prefix .. id, name)
  return type(value) == 'string' and value or nil
end

local found, refused, seen, bytes, full = {}, {}, {}, 0, false
local wip, composites, told = {}, {}, {}
local quoted = {}

-- Texts are few and repeat, so each is written as JSON once.
local function json(text)
  local written = quoted[text]
  if not written then
    written = cjson.encode(text)
    quoted[text] = written
  end
  return written
end

local function start(id, fields, hash)
  local job, origin = job_prefix .. id, fields.origin or ''
  local execution = ARGV[5] .. string.format('%08x', #found)
  local composite = id .. ':' .. execution
  if fields.ttl then
    local left = redis.call('PTTL', job)
    if left > 0 then
      redis.call('HSET', job, 'envq_expires', time[1] * 1000 + math.floor(time[2] / 1000) + left)
    end
  end
  redis.call('HSET', job, 'status', 'started', 'started_at', now_text, 'last_heartbeat', now_text, 'worker_name', executor)
  redis.call('PERSIST', job)  -- also of an id that was used before: saving a record again leaves its time to live
  -- No time to live: whoever settles the claim removes it.
  redis.call('HSET', execution_prefix .. composite, 'id', execution, 'job_id', id, 'created_at', now,
    'last_heartbeat', now, 'worker_name', executor)
  redis.pcall('ZADD', executions_prefix .. id, '+inf', execution)  -- what else may lie there stops nobody
  local members = wip[origin]
  if not members then
    members = {}
    wip[origin] = members
  end
  members[#members + 1] = '+inf'
  members[#members + 1] = composite
  composites[#composites + 1] = composite
  told[#told + 1] = '"job_id":' .. cjson.encode(id) .. ',"execution_id":"' .. execution .. '","queue":' .. json(origin) ..
    ',"func":' .. json(string.match(fields.description or '', '^[^(]*'))  -- stock clients put arguments behind it
  found[#found + 1] = {id, execution, hash}
  seen[id] = true
  bytes = bytes + #(fields.data or '')
end

-- UTF-8, whose every valid sequence is taken away first.
local SEQUENCES = {'\240[\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
  '\244[\128-\143][\128-\191][\128-\191]', '\224[\160-\191][\128-\191]', '[\225-\236\238\239][\128-\191][\128-\191]',
  '\237[\128-\159][\128-\191]', '[\194-\223][\128-\191]'}
local function is_text(id)
  for _, sequence in ipairs(SEQUENCES) do
    id = string.gsub(id, sequence, '.')
  end
  return not string.find(id, '[\128-\255]')
end

-- Neither RQ's tools nor ours can name such a job: it must not stop those behind it, nor come into a registry.
local function refuse(id)
  redis.call('LREM', claims, -1, id)
  redis.call('HSET', job_prefix .. id, 'status', 'failed', 'ended_at', now_text)
  refused[#refused + 1] = id
end

-- Whether to go on; what must run alone, and what would be twice in a batch, stays where it is.
local function take(id, unknown)
  local hash = redis.pcall('HGETALL', job_prefix .. id)
  local fields = {}
  if not hash.err then
    for i = 1, #hash, 2 do
      fields[hash[i]] = hash[i + 1] ~= '' and hash[i + 1] or nil
    end
  end
  local status, once = fields.status, fields.envq_on_crash == 'fail'
  if hash.err or #hash == 0 or status == 'canceled' then
    redis.call('LREM', claims, -1, id)  -- deleted or cancelled while it waited
    return true
  end
  if string.find(id, '[\128-\255]') and not is_text(id) then
    refuse(id)
    return true
  end
  local alone = once or fields.envq_alone or fields.envq_settle
  if seen[id] or held[id] or (alone and (#found > 0 or holds_others)) then
    return false
  end
  local mine = fields.worker_name == executor
  local ended = status == 'finished' or status == 'failed' or status == 'stopped'
  if once and (ended or (status == 'started' and not mine)) and not fields.envq_settle then
    redis.call('LREM', claims, -1, id)  -- its id was pushed twice, by a repeated enqueue say, and it must not run twice
    return true
  end
  if unknown and status == 'started' and mine then
    forget_executions(id, fields.origin or '', executor)  -- a start whose reply was lost was never run
  end
  if fields.envq_settle then
    found[#found + 1] = {id, '', hash}
  else
    start(id, fields, hash)
  end
  full = alone or #found >= wanted or bytes >= bytes_wanted
  return true
end

-- A reply that never arrived, or a blocking move, left these here.
local unknown = {}
for _, id in ipairs(listed) do
  if not held[id] then
    unknown[#unknown + 1] = id
  end
end
if #unknown > 1 then
  local rank = {}
  for i = FIRST_QUEUE, #KEYS do
    rank[KEYS[i]] = i
  end
  local place = {}
  for i, id in ipairs(unknown) do
    place[id] = (rank[queue_prefix .. (field(id, 'origin') or '')] or 0) * 1000000 + i
  end
  table.sort(unknown, function(a, b) return place[a] < place[b] end)
end
full = wanted == 0
local next_unknown = 1
while not full and next_unknown <= #unknown and take(unknown[next_unknown], true) do
  next_unknown = next_unknown + 1
end
for i = #unknown, next_unknown, -1 do
  local id = unknown[i]
  if redis.call('LREM', claims, -1, id) == 1 then
    if field(id, 'envq_settle') then
      redis.call('RPUSH', settle, id)
    elseif not seen[id] and field(id, 'status') == 'started' and field(id, 'worker_name') == executor then
      to_front(id, job_prefix .. id, field(id, 'origin') or '')
    else
      redis.call('LPUSH', queue_prefix .. (field(id, 'origin') or ''), id)
    end
  end
end

local function drain(queue)
  while not full do
    local id = redis.call('LMOVE', queue, claims, 'LEFT', 'RIGHT')
    if not id then
      return
    end
    if not take(id) then
      redis.call('LMOVE', claims, queue, 'RIGHT', 'LEFT')
      full = true
    end
  end
end
drain(settle)
for i = FIRST_QUEUE, #KEYS do
  drain(KEYS[i])
end

for origin, members in pairs(wip) do
  redis.pcall('ZADD', wip_prefix .. origin, unpack(members))
end
if #composites > 0 then
  redis.call('SADD', worker_executions, unpack(composites))
end
if redis.call('EXISTS', worker) == 1 then
  redis.call('HSET', worker, 'state', #found + tonumber(ARGV[ASKED]) > 0 and 'busy' or 'idle', 'envq_trip', ARGV[2])
end
if #told > 0 then
  local text = '{"kind":"job.started","at":"' .. now_text .. '","worker":' .. json(executor) .. ','
  if #told == 1 then
    text = text .. told[1] .. '}'
  else
    text = text .. '"jobs":[{' .. table.concat(told, '},{') .. '}]}'
  end
  -- Events fail open: neither a missing right nor full memory keeps a job from starting.
  redis.pcall('PUBLISH', ARGV[6], text)
  redis.pcall('XADD', KEYS[8], 'MAXLEN', '~', #told > 8 and ARGV[7] / 10 or ARGV[7], '*', 'event', text)
end
return {redis.call('GET', KEYS[2]) or '', suspended, gone, refused, unpack(found)}
