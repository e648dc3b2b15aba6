
-- Ends a run: RECORDED, TOMBSTONE, FREE or HELD.
--
-- ARGV: lease; format u8, state u8, detail u8, with which the record is to begin; last write i64, status u16 and the response,
-- with which it is to end. Answers: 1 done, 0 fenced.

local _, to, to_detail = string.byte(ARGV[2], 1, 3)
if state == ABSENT or holder ~= ARGV[1] then return 0 end
if state ~= RUNNING then
  -- Sent again: an id ends its run once, in one way. A response and a tombstone are both the completion.
  local is_completion = state == RECORDED or state == TOMBSTONE
  return (state == to or (is_completion and (to == RECORDED or to == TOMBSTONE))) and 1 or 0
end
state, detail, answer = to, to_detail, 1
status, response = (struct.unpack('<H', ARGV[3], 9)), string.sub(ARGV[3], 11)
