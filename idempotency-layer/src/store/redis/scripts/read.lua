-- Reads the record. A verb's script is this part, then what the verb decides, then `write.lua` if it may write. Before all
-- that, the end of a run has `end.lua`.
--
-- The layout is that of `record.rs`: a head of 130 bytes, numbers little-endian, then the response where there is one.
-- Every script touches one key, and each of its writes gives the key its expiry anew.
--
-- The parts share locals, and have neither functions nor tables: those would be made anew in each call, and cost more than
-- the commands. A string costs what it is long, each time it is made, for the server's Lua hashes all of it.

local key = KEYS[1]
local call = redis.call

local ABSENT, RUNNING, RECORDED, TOMBSTONE, FREE, HELD = 0, 1, 2, 3, 4, 5
local RERUN, HOLD = 1, 2
local UNKNOWN, LAPSED = 1, 2
local LAYOUT = '<BBBBc64c16I4I4I4I8I8I8I8H'

-- Numbers are doubles here, exact up to 2^53, which milliseconds reach in the year 287396.
local time = call('TIME')
local micros = time[2] + 0
local now = time[1] * 1000 + (micros - micros % 1000) / 1000

-- The record's fields, of which `identity` is the fingerprint and the caller; ABSENT, if there is none or it has expired.
local state, expires, is_held = ABSENT, 0, false
local format, detail, unknown, identity, holder, attempt, lapsed, max, retention, claimed, till, written, status
-- What a verb that goes on to `write.lua` answers, and what follows the head.
local answer, response

local value = call('GET', key)
if value then
  -- Whatever the verb, -1 is a record that cannot be read, and -2 one of a newer version. An empty value is none of ours,
  -- and is left alone.
  format = string.byte(value) or 0
  if format > 1 then return -2 end
  if format < 1 or #value < 130 then return -1 end
  format, state, detail, unknown, identity, holder, attempt, lapsed, max, retention, claimed, till, written,
    status = struct.unpack(LAYOUT, value)
  if state < RUNNING or state > HELD or (unknown ~= RERUN and unknown ~= HOLD) or max == 0 then return -1 end
  if state == HELD then
    if detail ~= UNKNOWN and detail ~= LAPSED then return -1 end
    is_held = true
  elseif state == RUNNING and unknown == HOLD then
    -- It does not expire, and would be held if its holder went silent; so it is in the eyes of everyone else.
    is_held = till <= now
  elseif written == 0 then
    -- Written without a look at the clock: it is as old as is gone of its time (see `plain.rs`, which counts likewise).
    local kept, left = retention, call('PTTL', key)
    if state == RUNNING and till > kept then kept = till end
    if kept < 1 then kept = 1 end
    if left == -1 then
      -- Somebody has taken its expiry away, and with it how old it is. What is completed is so all the same.
      if state == RUNNING then return -1 end
      left = kept
    end
    expires = now + left
    written = expires - kept
    claimed, till = written, written + till
    if left < 1 then state = ABSENT end
  else
    expires = written + retention
    if state == RUNNING and till > expires then expires = till end
    if expires <= now then state = ABSENT end
  end
end
