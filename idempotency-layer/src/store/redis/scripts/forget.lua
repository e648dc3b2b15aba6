-- Takes a claim back as if it had never been.
--
-- ARGV: lease. Answers: {1} done, {0} fenced.

local r, wrong = read()
if wrong then return { wrong } end
if not r then return { 1 } end
if r.state ~= RUNNING or r.lease ~= ARGV[1] then return { 0 } end
redis.call('DEL', key)
return { 1 }
