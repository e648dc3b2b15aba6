
-- Carries out an operator's decision on one hold.
--
-- ARGV: the hold's id, the decision's id; format u8, state u8, detail u8, with which the record is to begin, ABSENT if there
-- is to be none; last write i64, status u16 and the response, with which it is to end. Answers: 1 done, 0 fenced.

local _, to, to_detail = string.byte(ARGV[3], 1, 3)
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
state, detail, holder, answer = to, to_detail, ARGV[2], 1
status, response = (struct.unpack('<H', ARGV[4], 9)), string.sub(ARGV[4], 11)
