
-- Reads without claiming.
--
-- Answers: 0 absent, {1, lease, age, lapsed} running, {2, value} recorded, {3, status, reason} tombstone, 4 free,
-- {5, lease, attempt, cause, age} held.

if state == RECORDED then return { 2, value } end
if state == TOMBSTONE then return { 3, status, detail } end
if state == ABSENT or state == FREE then return state end
if state == HELD then return { 5, holder, attempt, detail, now - written } end
if is_held then return { 5, holder, attempt, LAPSED, now - till } end
return { 1, holder, now - claimed, till <= now and 1 or 0 }
