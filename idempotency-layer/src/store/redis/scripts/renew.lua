-- Starts a lease anew, and the retention with it.
--
-- ARGV: lease, its duration. Answers: {1} renewed, {0} fenced.

local r, wrong = read()
if wrong then return { wrong } end
if not r or r.lease ~= ARGV[1] then return { 0 } end
-- One that this id has settled stays as it is.
if r.state == RUNNING then
  r.till = now + tonumber(ARGV[2])
  write(r)
end
return { 1 }
