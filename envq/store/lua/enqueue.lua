-- Write new jobs that differ only in id and call, and push them; atomic, and safe to repeat after a lost reply.
-- KEYS: queue, queues, and the code that the jobs need if it is not on every worker
-- ARGV: job key prefix, "L" for the front or "R", seconds the records live (0: no end), seconds the code must live on
--       (-1: for ever), number of common fields and values together, field, value..., then id, data...
-- Returns how many were new; -1 where the code is not there, and nothing was written.
local prefix, side, ttl, code_ttl, common = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if KEYS[3] then
  local left = redis.call('TTL', KEYS[3])
  if left == -2 then
    return -1
  end
  if code_ttl < 0 then
    redis.call('PERSIST', KEYS[3])
  elseif left ~= -1 and left < code_ttl then
    redis.call('EXPIRE', KEYS[3], code_ttl)
  end
end
local fields = {}
for i = 1, common do
  fields[i] = ARGV[5 + i]
end
fields[common + 1] = 'data'

redis.call('SADD', KEYS[2], KEYS[1])
local new = {}
for i = 6 + common, #ARGV, 2 do
  local id, job = ARGV[i], prefix .. ARGV[i]
  -- Ids are random: one that exists was written by this very call, whose reply got lost.
  if redis.call('EXISTS', job) == 0 then
    fields[common + 2] = ARGV[i + 1]
    redis.call('HSET', job, unpack(fields))
    if ttl > 0 then
      redis.call('EXPIRE', job, ttl)
    end
    new[#new + 1] = id
  end
end
if #new > 0 then
  redis.call(side .. 'PUSH', KEYS[1], unpack(new))
end
return #new
