-- Make sure that a code blob lives at least so long.
-- KEYS: code
-- ARGV: seconds (-1: for ever)
-- Returns 1, or 0 where there is no such blob.
local wanted = tonumber(ARGV[1])
local left = redis.call('TTL', KEYS[1])
if left == -2 then
  return 0
end
if wanted < 0 then
  redis.call('PERSIST', KEYS[1])
elseif left ~= -1 and left < wanted then
  redis.call('EXPIRE', KEYS[1], wanted)
end
return 1
