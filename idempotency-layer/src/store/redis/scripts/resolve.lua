
-- Carries out an operator's decision on one hold.
--
-- ARGV: the hold's id, the decision's id, what becomes of the record (RECORDED, FREE, or ABSENT), detail, status,
-- response. Answers: 1 done, 0 fenced.

local to = ARGV[3] + 0
if state == ABSENT then return to == ABSENT and 1 or 0 end
-- Sent again.
if not is_held then return holder == ARGV[2] and state == to and 1 or 0 end
-- The same record, held again since: what the operator saw is not what is there.
if holder ~= ARGV[1] then return 0 end
if to == ABSENT then
  call('DEL', key)
  return 1
end
if to == FREE then lapsed = 0 end
state, detail, status, holder, response, answer = to, ARGV[4], ARGV[5], ARGV[2], ARGV[6], 1
