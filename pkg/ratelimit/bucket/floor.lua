-- What only takes with a note need: the floors of takes, and the notes of refunds. A note is stored as "r1 clock until".
-- A refund at the time clock voids all floors that are not newer. From the time until on, none of them matters.
local NOTE = '^r1 (%d+) (%d+)$'
local DAY = 86400000000
local JOINED, VOIDED, UNUSABLE = 1, 2, 3

-- read returns the two times of a note, or nothing.
local function read(key)
  local text = call('GET', key)
  local clock, till
  if type(text) == 'string' then clock, till = match(text, NOTE) end
  if not clock or clock + 0 >= WHOLE or till + 0 >= WHOLE then return nil end
  return clock + 0, till + 0
end

-- forward returns the time of a bucket at the time now: after a large step back of the clock it moves with the clock.
local function forward(last, now)
  if last - now > MAX_CLOCK_STEP then return now end
  return last
end

-- rolled returns a bucket at the time x: whether it is readable, and a, b, c, d as judge returns them.
local function rolled(requests, window, x, last, value, a, b, c, d)
  local fits, _
  fits, _, _, a, b, c, d = judge(requests, window, 0, 0, 0, 0, 0, x, last, value, a, b, c, d)
  return fits ~= nil, a, b, c, d
end

-- join joins the floor, a text that was seen at the time at, with the value of a bucket. It returns what became of the
-- floor, the value to go on with, and whether that is not the old one.
local function join(noted, algorithm, requests, window, now, value)
  local floor, at = noted.floor, noted.at
  if floor == '' then return JOINED, value end
  local last, a, b, c, d = match(floor, pattern)
  if not last or last + 0 >= WHOLE or at - now > DAY then return UNUSABLE, value end
  local voided = read(noted.key)
  -- A note from before a large step back of the clock voids no floor from after it.
  if voided and voided >= at and (voided - now <= MAX_CLOCK_STEP or at - now > MAX_CLOCK_STEP) then
    return VOIDED, value
  end

  -- Bring both to one time, which is the later of the two if the clock has stepped back a little.
  local held, p, q, r, s = now, nil, nil, nil, nil
  if value then held, p, q, r, s = match(value, pattern) end
  if not held or held + 0 >= WHOLE then return JOINED, value end -- the bucket is unreadable
  local cut = noted.cut == 1 and at - last + forward(last + 0, now) or nil -- its time moves with the bucket
  last, held = forward(last + 0, now), forward(held + 0, now)
  local x = last > held and last or held
  if x < now then x = now end
  local readable
  readable, p, q, r, s = rolled(requests, window, x, held, value, p, q, r, s)
  if not readable then return JOINED, value end
  readable, a, b, c, d = rolled(requests, window, x, last, floor, a, b, c, d)
  if not readable then return UNUSABLE, value end

  local before = settle(requests, window, 0, 0, nil, nil, x, p, q, r, s)
  a, b, c, d = engine(algorithm, true)(x, p, q, r, s, a, b, c, d, cut)
  if not a then return UNUSABLE, value end
  local after = settle(requests, window, 0, 0, nil, nil, x, a, b, c, d)
  if after == before and (x == now or x == held) then return JOINED, value end
  return JOINED, after, true
end

-- prepare does what a take with a note needs before it is judged: it joins the floor with the value, and if the take
-- refunds, it works out until when the note of that matters: until the bucket is empty. It returns the value to judge.
local function prepare(noted, algorithm, requests, window, refunds, now, value)
  if noted.floor then
    noted.fate, value, noted.joined = join(noted, algorithm, requests, window, now, value)
  end
  if not refunds or not value then return value end
  local last, a, b, c, d = match(value, pattern)
  if not last or last + 0 >= WHOLE then return value end -- it is unreadable
  last = forward(last + 0, now)
  local x, readable = last > now and last or now, nil
  readable, a, b, c, d = rolled(requests, window, x, last, value, a, b, c, d)
  if readable then
    local _, till = settle(requests, window, 0, 0, nil, nil, x, a, b, c, d)
    noted.till = till
  end
  return value
end

-- remember writes the note of a refund at the time now. It returns the reply of Redis.
local function remember(noted, now, timed)
  local slack = timed and WRITTEN_FOR_TEST or WRITTEN_FOR
  local till, clock, before = noted.till, read(noted.key)
  if clock and clock - now <= MAX_CLOCK_STEP then
    if before > till then till = before end
    if clock < now then clock = now end
  else -- none, or one from before a large step back of the clock
    clock = now
  end
  return call('SET', noted.key, format('r1 %d %d', clock, till), 'PX', format('%d', (till - now) / 1000 + slack + 1))
end

return prepare, remember
