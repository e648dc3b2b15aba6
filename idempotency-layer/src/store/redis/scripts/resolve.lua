-- Carries out an operator's decision on one hold.
--
-- ARGV: the hold's id, the decision's id, what becomes of the record (RECORDED, FREE, or 0 for nothing left), detail,
-- status, response. Answers: {1} done, {0} fenced.

local r, wrong = read()
if wrong then return { wrong } end
local state = tonumber(ARGV[3])
if not r then return { state == 0 and 1 or 0 } end
if not is_held(r) then
  -- Sent again.
  return { r.lease == ARGV[2] and r.state == state and 1 or 0 }
end
-- The same record, held again since: what the operator saw is not what is there.
if r.lease ~= ARGV[1] then return { 0 } end
if state == 0 then
  redis.call('DEL', key)
  return { 1 }
end
if state == FREE then r.lapsed = 0 end
r.state, r.detail, r.status, r.lease = state, tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[2]
write(r, ARGV[6])
return { 1 }
