
-- Asks to be the holder.
--
-- ARGV: the head of a first run's record, whose times are left to its expiry; the lease's duration; how long the record is
-- kept, or 0 if it is to have no expiry.
-- Answers: the attempt, from 1 on, of one that is acquired; {2, age} in flight, {3, expires in, value} recorded,
-- {4, status, reason} unavailable; -3 another request, -4 another caller, -5 held.

local head = ARGV[1]
if state == ABSENT then
  if ARGV[3] == '0' then
    call('SET', key, string.sub(head, 1, 104) .. struct.pack('<I8I8I8H', now, now + ARGV[2], now, 0))
  else
    call('SET', key, head, 'PX', ARGV[3])
  end
  return 1
end
if identity ~= string.sub(head, 5, 68) then
  return string.sub(identity, 1, 32) == string.sub(head, 5, 36) and -4 or -3
end
if state == RECORDED then return { 3, expires - now, value } end
if state == TOMBSTONE then return { 4, status, detail } end
if state == HELD then return -5 end

local lease = string.sub(head, 69, 84)
local begins = false
if state == FREE then
  -- A duplicate of the claim whose run ended here. To claim again would leave a lease that nobody holds.
  if holder == lease then return { 2, now - claimed } end
  begins = true
elseif holder == lease then
  till, answer = now + ARGV[2], attempt
elseif till > now then
  return { 2, now - claimed }
else
  -- Lapsed: the policy that it was claimed under decides.
  lapsed = lapsed + 1
  if unknown == RERUN and lapsed < max then
    begins = true
  else
    state, detail, holder, answer = HELD, LAPSED, lease, -5
  end
end
if begins then
  answer, claimed, till, status = attempt + 1, now, now + ARGV[2], 0
  format, state, detail, unknown, identity, holder, attempt = struct.unpack('<BBBBc64c16', head)
  max, retention = struct.unpack('<I4I8', head, 93)
  attempt = answer
end
