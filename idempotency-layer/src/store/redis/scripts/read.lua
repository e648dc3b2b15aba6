-- A record, read and written. The scripts of the verbs follow this part, one at a time.
--
-- The layout is that of `record.rs`: a head of 130 bytes, numbers little-endian, then the response where there is one.
-- Every script touches one key, and each of its writes gives the key its expiry anew.

local key = KEYS[1]

-- Numbers are doubles here, exact up to 2^53, which milliseconds reach in the year 287396.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local RUNNING, RECORDED, TOMBSTONE, FREE, HELD = 1, 2, 3, 4, 5
local RERUN, HOLD = 1, 2
local UNKNOWN, LAPSED = 1, 2
local LAYOUT = '<BBBBc32c32c16I4I4I4I8I8I8I8H'

-- What every script can answer, besides what its verb says.
local CORRUPT, NEWER = -1, -2

-- The record, or none; and what is wrong with it, if so.
local function read()
  local head = redis.call('GETRANGE', key, 0, 129)
  if head == '' then
    -- An empty value is none of ours, and is left alone.
    if redis.call('EXISTS', key) == 1 then return nil, CORRUPT end
    return nil
  end
  local format = string.byte(head)
  if format > 1 then return nil, NEWER end
  if format < 1 or #head < 130 then return nil, CORRUPT end
  local r = {}
  r.format, r.state, r.detail, r.unknown, r.fingerprint, r.caller, r.lease, r.attempt, r.lapsed, r.max, r.retention,
    r.claimed, r.till, r.written, r.status = struct.unpack(LAYOUT, head)
  local known = r.state >= RUNNING and r.state <= HELD and (r.unknown == RERUN or r.unknown == HOLD) and r.max > 0
  if not known then return nil, CORRUPT end
  if r.state == HELD and r.detail ~= UNKNOWN and r.detail ~= LAPSED then return nil, CORRUPT end
  r.expires = r.written + r.retention
  if r.state == RUNNING then r.expires = math.max(r.expires, r.till) end
  -- A held record does not expire, and neither does a run that would be held if its holder went silent.
  local stays = r.state == HELD or (r.state == RUNNING and r.unknown == HOLD)
  if not stays and r.expires <= now then return nil end
  return r
end

-- Whether it is held in the eyes of everyone but its holder.
local function is_held(r)
  return r.state == HELD or (r.state == RUNNING and r.unknown == HOLD and r.till <= now)
end

local function write(r, response)
  local head = struct.pack(LAYOUT, 1, r.state, r.detail, r.unknown, r.fingerprint, r.caller, r.lease, r.attempt,
    r.lapsed, r.max, r.retention, r.claimed, r.till, now, r.status)
  if r.state == HELD or (r.state == RUNNING and r.unknown == HOLD) then
    redis.call('SET', key, head)
    return
  end
  local kept = r.retention
  if r.state == RUNNING then kept = math.max(kept, r.till - now) end
  redis.call('SET', key, head .. (response or ''), 'PX', math.max(kept, 1))
end
