-- Whether an executor may store the end of a job.
-- KEYS: claims, job
-- ARGV: job id
-- Returns {1 if it is claimed, 1 if its record is there}
return {redis.call('LPOS', KEYS[1], ARGV[1]) and 1 or 0, redis.call('EXISTS', KEYS[2])}
