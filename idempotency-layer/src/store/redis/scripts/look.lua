-- Reads without claiming.
--
-- Answers: {0} absent, {1, lease, age, lapsed} running, {2, value} recorded, {3, status, reason} tombstone, {4} free,
-- {5, lease, attempt, cause, age} held.

local r, wrong = read()
if wrong then return { wrong } end
if not r then return { 0 } end
if r.state == RUNNING then
  if is_held(r) then return { 5, r.lease, r.attempt, LAPSED, now - r.till } end
  return { 1, r.lease, now - r.claimed, r.till <= now and 1 or 0 }
end
if r.state == RECORDED then return { 2, redis.call('GET', key) } end
if r.state == TOMBSTONE then return { 3, r.status, r.detail } end
if r.state == FREE then return { 4 } end
return { 5, r.lease, r.attempt, r.detail, now - r.written }
