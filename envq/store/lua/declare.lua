-- Write or remove one declaration, if nobody changed it since it was read.
-- KEYS: declarations, generation, new code, old code (the new code's key again where there is none),
--       tries of the version before
-- ARGV: name, the header as read ("" for none), the new header ("" removes), code blob, random token,
--       seconds the old code is kept, channel, message, 1 if builds start over (lifts a quarantine)
-- Returns the new generation, or "" where the header was changed meanwhile.
local declarations, generation, new_code, old_code = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, expected, header, blob, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if (redis.call('HGET', declarations, name) or '') ~= expected then
  return ''
end
local before = redis.call('GET', generation) or '0'
local counter = (tonumber(string.match(before, '^%d+') or '') or 0) + 1
-- The life goes on until the store is emptied.
local next_generation = string.format('%d:%s:%s', counter, token, string.match(before, '^%d+:%x+:(%x+)$') or token)
if header == '' then
  redis.call('HDEL', declarations, name)
else
  if blob ~= '' then
    redis.call('SET', new_code, blob)
  end
  redis.call('HSET', declarations, name, header)
end

-- Variables that are declared with the same code share it.
local function needed(code)
  for _, each in ipairs(redis.call('HVALS', declarations)) do
    local readable, declaration = pcall(cjson.decode, each)
    local digest = readable and type(declaration) == 'table' and declaration.digest
    if type(digest) == 'string' and digest ~= '' and string.sub(code, -#digest) == digest then
      return true
    end
  end
  return false
end

if not needed(old_code) then
  redis.call('EXPIRE', old_code, ARGV[6])
end
if ARGV[9] == '1' then
  redis.call('DEL', KEYS[5])
end
redis.call('SET', generation, next_generation)
-- Only a doorbell: a user without the right to publish still declares.
redis.pcall('PUBLISH', ARGV[7], ARGV[8])
return next_generation
