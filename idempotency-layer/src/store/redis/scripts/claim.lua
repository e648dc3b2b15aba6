-- Asks to be the holder.
--
-- ARGV: fingerprint, caller, lease, its duration, retention, what an unknown outcome means, most lapsed runs.
-- Answers: {1, attempt} acquired, {2, age} in flight, {3, expires in, value} recorded, {4, status, reason} unavailable,
-- {5} held, {6} another request, {7} another caller.

local r, wrong = read()
if wrong then return { wrong } end

local lease = ARGV[3]
local till = now + tonumber(ARGV[4])

local function run(attempt, lapsed)
  write({
    state = RUNNING, detail = 0, unknown = tonumber(ARGV[6]), fingerprint = ARGV[1], caller = ARGV[2], lease = lease,
    attempt = attempt, lapsed = lapsed, max = tonumber(ARGV[7]), retention = tonumber(ARGV[5]), claimed = now,
    till = till, status = 0,
  })
  return { 1, attempt }
end

if not r then return run(1, 0) end
if r.fingerprint ~= ARGV[1] then return { 6 } end
if r.caller ~= ARGV[2] then return { 7 } end
if r.state == RECORDED then return { 3, r.expires - now, redis.call('GET', key) } end
if r.state == TOMBSTONE then return { 4, r.status, r.detail } end
if r.state == HELD then return { 5 } end

local own = r.lease == lease
if r.state == FREE then
  -- A duplicate of the claim whose run ended here. To claim again would leave a lease that nobody holds.
  if own then return { 2, now - r.claimed } end
  return run(r.attempt + 1, r.lapsed)
end
if own then
  r.till = till
  write(r)
  return { 1, r.attempt }
end
if r.till > now then return { 2, now - r.claimed } end

-- Lapsed: the policy that it was claimed under decides.
local lapsed = r.lapsed + 1
if r.unknown == RERUN and lapsed < r.max then return run(r.attempt + 1, lapsed) end
r.state, r.detail, r.lapsed, r.lease = HELD, LAPSED, lapsed, lease
write(r)
return { 5 }
