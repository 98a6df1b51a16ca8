-- Write new jobs that differ only in id and call, and push them; atomic, and safe to repeat after a lost reply.
-- KEYS: queue, queues, generation of the declarations, and the code that the jobs need if it is not on every worker
-- ARGV: job key prefix, "L" for the front or "R", seconds the records live (0: no end), seconds the code must live on
--       (-1: for ever), twice the number of fields, how many fields are each job's own, field, value..., names of the
--       own fields; then for each job the values of those, id; last the generation that the driver's declarations are
--       part of, or ""
-- Returns how many were new; nothing was written and it is -1 where the code is not there, -2 where the store has
-- forgotten the driver's declarations: no job overtakes them.
local call = redis.call
local prefix, ttl, code_ttl = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local known = ARGV[#ARGV]
if known ~= '' then
  local now = call('GET', KEYS[3]) or ''
  if now ~= known then
    -- As generation.py says.
    local known_counter, known_life = string.match(known, '^(%d+):%x+:?(%x*)$')
    local counter, life = string.match(now, '^(%d+):%x+:?(%x*)$')
    if now == '' or counter and known_counter and (life ~= known_life or tonumber(counter) <= tonumber(known_counter)) then
      return -2
    end
  end
end
if KEYS[4] then
  local left = call('TTL', KEYS[4])
  if left == -2 then
    return -1
  end
  if code_ttl < 0 then
    call('PERSIST', KEYS[4])
  elseif left ~= -1 and left < code_ttl then
    call('EXPIRE', KEYS[4], code_ttl)
  end
end

local size, own = tonumber(ARGV[5]), tonumber(ARGV[6])
local first = 6 + size - own  -- the last of what all have in common: names of own fields
local fields = { unpack(ARGV, 7, first - own) }
local common = #fields
for k = 1, own do
  fields[common + 2 * k - 1] = ARGV[first - own + k]
end
local new = {}
for i = first + 1, #ARGV - 1, own + 1 do
  local id = ARGV[i + own]
  local job = prefix .. id
  -- Ids are random: one that exists was written by this very call, whose reply got lost.
  if call('EXISTS', job) == 0 then
    for k = 1, own do
      fields[common + 2 * k] = ARGV[i + k - 1]
    end
    call('HSET', job, unpack(fields))
    if ttl > 0 then
      call('EXPIRE', job, ttl)
    end
    new[#new + 1] = id
  end
end
-- Whoever put the first job on a queue made it known.
if #new > 0 and call(ARGV[2] .. 'PUSH', KEYS[1], unpack(new)) == #new then
  call('SADD', KEYS[2], KEYS[1])
end
return #new
