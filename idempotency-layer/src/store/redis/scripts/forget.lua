
-- Takes a claim back as if it had never been.
--
-- ARGV: lease. Answers: 1 done, 0 fenced.

if state == ABSENT then return 1 end
if state ~= RUNNING or holder ~= ARGV[1] then return 0 end
call('DEL', key)
return 1
