-- Publish an event and append it to the capped stream; fails open, so that a transaction around it still commits.
-- KEYS: events
-- ARGV: channel, event, cap
redis.pcall('PUBLISH', ARGV[1], ARGV[2])
redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', 'event', ARGV[2])
return 1
