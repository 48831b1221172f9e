-- Decides a batch of requests, each all or nothing by itself, as Request.Decide does (request.go). It reads and checks
-- a request as a whole before it writes anything of it. A request that fails leaves its buckets and other requests
-- unchanged.
--
-- KEYS     the keys of all takes of all requests, in order. Then the names of the notes of the takes that have one, in
--          reverse order.
-- ARGV[1]  a text that is sent back, so that the caller knows whose answer it holds.
-- ARGV[2]  the requests (Request.AppendArgs). A request: its time (0: the clock) and the number of its takes. A take:
--          algorithm, role, whether denials count, requests, window, burst, cost, need (at least the cost), and the
--          refund as the algorithm counts it: units and 0, or the time of the bucket algorithms in µs and parts. A take
--          of the role 3 gives back a charge: in place of a cost, which is 0, it has Take.ChargedAt. The role of a take
--          with a note has 8 added, and 4 if it has a floor. Its Floor then follows: Cut, At and the text of State.
--
-- Returns one line for ARGV[1] and the clock, and one for each request (Request.Answer):
--   + or -   allowed or denied; then for each take a tab, a digit and the new text of its bucket. The digit is 1 or 0
--            (it fits or not), and twice what became of the floor (Fate).
--   !        not charged; then the number of the take that failed, and the error
--   ?        the same, but an earlier take of the request may have been charged
--
-- A bucket is stored as a text: a tag of the algorithm and its version, the time of the last write, and the fields of
-- the algorithm. All numbers are whole and below 2^53, so a double holds them exactly. "%d" prints them exactly where
-- a C long has 64 bits, in half the time of "%.0f".

local keys, args = KEYS, ARGV[2]
local call, unpack = redis.pcall, struct.unpack
local fmod, format, match, sub = math.fmod, string.format, string.match, string.sub
local type = type

local WHOLE = 9007199254740992 -- from here on, a double does not hold every whole number
local MOST = 8589934590 -- the most units of one window in a bucket: twice the largest limit

-- muldiv returns n * r / d, whole and remainder, for 0 <= n < 2^34 and 0 <= r < d <= 2^34. It divides a product of
-- 2^53 or more in two steps, as in long division, in base 2^17. No number in them is above 2^52.
local function muldiv(n, r, d)
  local product = n * r
  if product < WHOLE then
    local rest = fmod(product, d)
    return (product - rest) / d, rest
  end
  local low = fmod(n, 131072)
  local high = (n - low) / 131072 * r
  local carry = fmod(high, d)
  local sum = carry * 131072 + low * r
  local rest = fmod(sum, d)
  return (high - carry) / d * 131072 + (sum - rest) / d, rest
end

-- engine makes the functions of one algorithm when it is needed: to make all of them costs each call half a
-- microsecond. It returns
--   pattern  of the texts: captures the time of the last write and up to four more texts a, b, c, d
--   judge    (requests, window, burst, refund, refund_part, since, need, x, last, value, a, b, c, d): brings the bucket
--            forward from last to x and gives back the refund: if since (Take.ChargedAt) is not 0, only what the bucket
--            still holds of it. It returns whether need fits (nil: it is unreadable), whether it gave anything back, and
--            a, b, c, d as they are now, as numbers. a is nil for an unused bucket.
--   settle   (requests, window, burst, cost, fits, x, a, b, c, d): charges the cost. It returns the text to store (nil:
--            the bucket is empty, false: the value is unreadable) and how long after x the text matters.
--   view     optional (requests, window, need, fits, x, value): returns the part of a long text that the caller needs
-- If merging is set, it returns one function instead: (x, a, b, c, d, those of a floor, cut) returns the larger of each
-- part, all at the time x, or nil if a text in them is unreadable. cut is nil, or the time of a floor that was cut.
local function engine(algorithm, merging)
  -- ENGINES
end

local WRITTEN_FOR = 1000 -- ms that a text outlives its use, so that expiry never decides
local WRITTEN_FOR_TEST = 5000 -- for an injected time, which may pass more slowly than Redis' own
local MAX_CLOCK_STEP = 2000000
local SHADOW, QUOTA, GIVE_BACK, FLOOR, NOTED = 1, 2, 3, 4, 8
local UNREADABLE = 'UNREADABLE the value is not one of ours'
local TAKE = '<BBBddddddd'
local TAKE_BYTES = 59
local FLOOR_OF_TAKE = '<BdI4c0' -- whether it was cut, its time and its text

local lines, line = {''}, 1
local current, pattern, judge, settle, view
local earlier -- the takes of a request before its last one
local clock -- read once, so that all requests of a batch are decided at the same time
local k, pos = 0, 1
local note, prepare, remember -- once a take has a note

while pos <= #args do
  local at, takes, now
  at, takes, pos = unpack('<dI4', args, pos)
  now = at
  if at == 0 then
    if not clock then
      local time = call('TIME')
      clock = time[1] * 1000000 + time[2]
    end
    now = clock
  end

  -- Read and judge. The last take stays in these variables, so that most requests need no table.
  local algorithm, role, counted, requests, window, burst, cost, need, refund, refund_part
  local fits, changed, x, a, b, c, d, stored
  local denied, quotas, over, failure, notes = false, 0, 0, nil, nil
  local first = k
  for i = 1, takes do
    algorithm, role, counted, requests, window, burst, cost, need, refund, refund_part, pos = unpack(TAKE, args, pos)
    k = k + 1
    changed, stored = false, ''
    local since = 0
    local noted
    if role >= NOTED then
      role, note = role - NOTED, (note or #keys + 1) - 1
      noted, notes = {key = keys[note], fate = 0}, notes or {}
      notes[i] = noted
      if role >= FLOOR then
        role = role - FLOOR
        noted.cut, noted.at, noted.floor, pos = unpack(FLOOR_OF_TAKE, args, pos)
      end
      if not prepare then -- functions cost each call time, so they are not made before
        prepare, remember = (function()
          -- FLOORS
        end)()
      end
    end
    if role == GIVE_BACK then since, cost = cost, 0 end
    if requests == 0 then -- a closed bucket neither reads nor writes, so a debt survives it
      fits = need == 0
    else
      if algorithm ~= current then
        pattern, judge, settle, view = engine(algorithm)
        current = algorithm
      end
      local value = call('GET', keys[k])
      if noted and type(value) ~= 'table' then
        value = prepare(noted, algorithm, requests, window, burst, refund + refund_part > 0, now, value)
      end
      if not value then
        x = now
        fits, changed, a, b, c, d = judge(requests, window, burst, refund, refund_part, since, need, x, x)
      elseif type(value) == 'table' then
        fits, failure = nil, value.err
      else
        local last
        stored = value
        last, a, b, c, d = match(value, pattern)
        last = last and last + 0 or WHOLE
        if last >= WHOLE then
          fits = nil
        else
          local moved = last - now > MAX_CLOCK_STEP
          if moved then last = now end -- the bucket moves with the clock; store that even after a denial
          x = last > now and last or now
          fits, changed, a, b, c, d =
            judge(requests, window, burst, refund, refund_part, since, need, x, last, value, a, b, c, d)
          changed = changed or moved or noted and noted.joined
        end
      end
      if fits == nil then
        failure = '!' .. i .. ' ' .. (failure or UNREADABLE)
        for _ = i + 1, takes do
          local skipped = unpack('B', args, pos + 1) -- the role
          pos, k = pos + TAKE_BYTES, k + 1
          if skipped >= NOTED then
            note, skipped = (note or #keys + 1) - 1, skipped - NOTED
            if skipped >= FLOOR then
              local _
              _, _, _, pos = unpack(FLOOR_OF_TAKE, args, pos)
            end
          end
        end
        break
      end
      if need == 0 and refund + refund_part > 0 then fits = true end
    end
    if role == QUOTA then
      quotas = quotas + 1
      if not fits then over = over + 1 end
    elseif not fits and role ~= SHADOW then
      denied = true
    end
    if i < takes then
      earlier = earlier or {}
      earlier[i] = {
        algorithm, role, counted, requests, window, burst, cost, need, fits, changed, x, a, b, c, d, stored,
      }
    end
  end
  local allowed = not denied and (quotas == 0 or over < quotas)

  -- Charge, write and answer, the last take first.
  if not failure then
    local written = false
    for i = takes, 1, -1 do
      if i < takes then
        local e = earlier[i]
        algorithm, role, counted, requests, window, burst = e[1], e[2], e[3], e[4], e[5], e[6]
        cost, need, fits, changed = e[7], e[8], e[9], e[10]
        x, a, b, c, d, stored = e[11], e[12], e[13], e[14], e[15], e[16]
      end
      local noted = notes and notes[i]
      if requests > 0 then
        if algorithm ~= current then
          pattern, judge, settle, view = engine(algorithm)
          current = algorithm
        end
        local charged
        if allowed or role == SHADOW then
          charged = fits or counted == 1 and role == SHADOW
        else
          charged = counted == 1
        end
        if not charged then cost = 0 end
        if cost > 0 or changed then
          local lifetime, done
          stored, lifetime = settle(requests, window, burst, cost, fits, x, a, b, c, d)
          local slack = at == 0 and WRITTEN_FOR or WRITTEN_FOR_TEST
          if noted and noted.till then done = remember(noted, now, slack) end
          if type(done) == 'table' and done.err then -- without its note, a refund is not given
          elseif stored then
            -- "%d" cuts the fraction off; the 1 more than makes up for it.
            done = call('SET', keys[first + i], stored, 'PX', format('%d', (x - now + lifetime) / 1000 + slack + 1))
          elseif stored == nil then
            stored = ''
            done = call('DEL', keys[first + i])
          else
            done = {err = UNREADABLE}
          end
          if type(done) == 'table' and done.err then
            -- A replica writes nothing: return its reply as the error of the script, so that the client leaves this
            -- server.
            if sub(done.err, 1, 8) == 'READONLY' then return done end
            failure = (written and '?' or '!') .. i .. ' ' .. done.err
            break
          end
          written = true
        end
        if view then stored = view(requests, window, need, fits, x, stored) end
      end
      if noted then
        lines[line + 1 + i] = format('\t%d', 2 * noted.fate + (fits and 1 or 0)) .. stored
      else
        lines[line + 1 + i] = (fits and '\t1' or '\t0') .. stored
      end
    end
  end
  if failure then
    line = line + 1
    lines[line] = '\n' .. failure
  else
    lines[line + 1] = allowed and '\n+' or '\n-'
    line = line + 1 + takes
  end
end
lines[1] = ARGV[1] .. format(' %d', clock or 0)
return table.concat(lines, '', 1, line)
