
-- Starts a lease anew, and the retention with it.
--
-- ARGV: lease, its duration. Answers: 1 renewed, 0 fenced.

if state == ABSENT or holder ~= ARGV[1] then return 0 end
-- One that this id has settled stays as it is.
if state ~= RUNNING then return 1 end
till, answer = now + ARGV[2], 1
