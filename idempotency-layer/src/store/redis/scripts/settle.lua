
-- Ends a run: RECORDED, TOMBSTONE, FREE or HELD.
--
-- ARGV: lease, state, detail, status, response. Answers: 1 done, 0 fenced.

if state == ABSENT or holder ~= ARGV[1] then return 0 end
local to = ARGV[2] + 0
if state ~= RUNNING then
  -- Sent again: an id ends its run once, in one way. A response and a tombstone are both the completion.
  local is_completion = state == RECORDED or state == TOMBSTONE
  return (state == to or (is_completion and (to == RECORDED or to == TOMBSTONE))) and 1 or 0
end
state, detail, status, response, answer = to, ARGV[3], ARGV[4], ARGV[5], 1
