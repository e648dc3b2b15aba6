-- Ends a run: RECORDED, TOMBSTONE, FREE or HELD.
--
-- ARGV: lease, state, detail, status, response. Answers: {1} done, {0} fenced.

local r, wrong = read()
if wrong then return { wrong } end
if not r or r.lease ~= ARGV[1] then return { 0 } end
local state = tonumber(ARGV[2])
if r.state == RUNNING then
  r.state, r.detail, r.status = state, tonumber(ARGV[3]), tonumber(ARGV[4])
  write(r, ARGV[5])
  return { 1 }
end
-- Sent again: an id ends its run once, in one way. A response and a tombstone are both the completion.
local is_completion = r.state == RECORDED or r.state == TOMBSTONE
if r.state == state or (is_completion and (state == RECORDED or state == TOMBSTONE)) then return { 1 } end
return { 0 }
