-- Executors that gave no sign of life for so long, by the server's clock.
-- KEYS: executors
-- ARGV: milliseconds
-- Returns their names.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))
