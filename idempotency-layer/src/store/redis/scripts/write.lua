
-- Writes what the verb has made of the record. One that is held, or would be, has no expiry.
local record = struct.pack(LAYOUT, 1, state, detail, unknown, identity, holder, attempt, lapsed, max, retention,
  claimed, till, now, status)
if state == HELD or (state == RUNNING and unknown == HOLD) then
  call('SET', key, record)
else
  local kept = retention
  if state == RUNNING and till - now > kept then kept = till - now end
  if kept < 1 then kept = 1 end
  if response then record = record .. response end
  call('SET', key, record, 'PX', kept)
end
return answer
