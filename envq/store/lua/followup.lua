-- Have an executor do what follows the end of a job, where the process died that had just stored it.
-- KEYS: job, settle
-- ARGV: job id
-- Returns 1, or 0 where the job is gone, or has not ended or is to run again.
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then
  return 0
end
local status, settle = unpack(redis.call('HMGET', KEYS[1], 'status', 'envq_settle'))
if settle or not (status == 'failed' or status == 'finished' or status == 'stopped') then
  return 0
end
redis.call('HSET', KEYS[1], 'envq_settle', '{"kind":"ended"}')
redis.call('RPUSH', KEYS[2], ARGV[1])
return 1
