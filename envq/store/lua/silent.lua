-- Executors whose time is over, by the server's clock: they gave no sign of life for as long as they said they might.
-- KEYS: executors
-- ARGV: milliseconds past that, how long the asker has been in contact (ms), for whom it does not know, prefix of workers
-- Returns their names. Of those that may be silent for longer than the asker has been in contact, none: after an outage
-- everybody looks dead, and the living have as long to give a sign as at any other time.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local contact, silent = tonumber(ARGV[2]), {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[1]))) do
  local silence = redis.pcall('HGET', ARGV[4] .. name, 'envq_silence')
  if contact >= (tonumber(type(silence) == 'string' and silence or ARGV[3]) or 0) then
    silent[#silent + 1] = name
  end
end
return silent
