
-- Asks to be the holder.
--
-- ARGV: fingerprint, caller, lease, its duration, retention, what an unknown outcome means, most lapsed runs.
-- Answers: the attempt, from 1 on, of one that is acquired; {2, age} in flight, {3, expires in, value} recorded,
-- {4, status, reason} unavailable; -3 another request, -4 another caller, -5 held.

local lease = ARGV[3]
local begins = false
if state == ABSENT then
  attempt, lapsed, begins = 1, 0, true
elseif fingerprint ~= ARGV[1] then
  return -3
elseif caller ~= ARGV[2] then
  return -4
elseif state == RECORDED then
  return { 3, expires - now, value }
elseif state == TOMBSTONE then
  return { 4, status, detail }
elseif state == HELD then
  return -5
elseif state == FREE then
  -- A duplicate of the claim whose run ended here. To claim again would leave a lease that nobody holds.
  if holder == lease then return { 2, now - claimed } end
  attempt, begins = attempt + 1, true
elseif holder == lease then
  till, answer = now + ARGV[4], attempt
elseif till > now then
  return { 2, now - claimed }
else
  -- Lapsed: the policy that it was claimed under decides.
  lapsed = lapsed + 1
  if unknown == RERUN and lapsed < max then
    attempt, begins = attempt + 1, true
  else
    state, detail, holder, answer = HELD, LAPSED, lease, -5
  end
end
if begins then
  state, detail, unknown, fingerprint, caller, holder = RUNNING, 0, ARGV[6] + 0, ARGV[1], ARGV[2], lease
  max, retention, claimed, till, status, answer = ARGV[7], ARGV[5] + 0, now, now + ARGV[4], 0, attempt
end
