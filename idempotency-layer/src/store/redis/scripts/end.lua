-- Ends a run in the way in which nearly all end: its holder completes it. This needs no clock, for the record's last write is
-- left to its expiry (see `record.rs`), and reads no more than it must. Whatever else it is, the parts that follow decide.
--
-- ARGV: as for `settle.lua`.

local key, call = KEYS[1], redis.call
local run = call('GET', key)
if run and #run == 130 and string.sub(run, 69, 84) == ARGV[1] then
  local format, state, _, unknown = string.byte(run, 1, 4)
  local max, retention = struct.unpack('<I4I8', run, 93)
  if format == 1 and state == 1 and (unknown == 1 or unknown == 2) and max > 0 and string.byte(ARGV[2], 2) <= 3 then
    if retention < 1 then retention = 1 end
    call('SET', key, ARGV[2] .. string.sub(run, 4, 120) .. ARGV[3], 'PX', retention)
    return 1
  end
end

