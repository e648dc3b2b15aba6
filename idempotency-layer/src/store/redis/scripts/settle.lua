
-- Ends a run: RECORDED, TOMBSTONE, FREE or HELD.
--
-- ARGV: lease u8[16], state u8, detail u8, status u16, in one; response. Answers: 1 done, 0 fenced.

local lease, to, to_detail, to_status = struct.unpack('<c16BBH', ARGV[1])
if state == ABSENT or holder ~= lease then return 0 end
if state ~= RUNNING then
  -- Sent again: an id ends its run once, in one way. A response and a tombstone are both the completion.
  local is_completion = state == RECORDED or state == TOMBSTONE
  return (state == to or (is_completion and (to == RECORDED or to == TOMBSTONE))) and 1 or 0
end
state, detail, status, response, answer = to, to_detail, to_status, ARGV[2], 1
