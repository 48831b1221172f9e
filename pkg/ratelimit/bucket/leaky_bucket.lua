-- The twin of leaky_bucket.go. The text: "b1 time micros", where micros is the time until the bucket is empty. If that
-- has a fraction, " part rate" follows: the numerator, and the requests in a window of the limit that it belongs to.
local pattern = '^b1 (%d+) (%d+)(.*)$'
local FRACTION = '^ (%d+) (%d+)$'

if merging then
  return function(_, micros, part, _, _, micros2, part2)
    if micros2 > micros or micros2 == micros and part2 > part then return micros2, part2 end
    return micros, part
  end
end

-- leak returns the time in which n units leak, n * window / requests, in µs and parts.
local function leak(n, requests, window)
  local r = fmod(window, requests)
  local whole = n * ((window - r) / requests)
  if n * r < requests then return whole, n * r end -- the usual case: one unit, or a rate that divides
  local more, part = muldiv(n, r, requests)
  return whole + more, part
end

local function judge(requests, window, burst, refund, refund_part, since, need, x, last, _, micros, fraction)
  if not micros then return need <= burst, nil, 0, 0 end
  local part, gave = 0, nil
  micros = micros + 0
  if micros >= WHOLE then return nil end
  if fraction ~= '' then
    local p, rate = match(fraction, FRACTION)
    if not p or rate + 0 > MOST or p + 0 >= rate + 0 then return nil end
    if rate + 0 == requests then
      part = p + 0
    elseif p + 0 > 0 then
      micros = micros + 1 -- up to the next whole µs, never in the client's favour
    end
  end
  micros = micros - (x - last)
  if micros < 0 then micros, part = 0, 0 end
  if refund + refund_part > 0 and micros + part > 0 then
    gave = true
    -- From that time on, nothing else was there to leak in any case.
    if since > 0 and x > since then refund = refund - (x - since) end
    if refund >= 0 then
      micros, part = micros - refund, part - refund_part
      if part < 0 then micros, part = micros - 1, part + requests end
      if micros < 0 then micros, part = 0, 0 end
    end
  end
  if need > burst then return false, gave, micros, part end
  if micros + part == 0 then return true, gave, 0, 0 end
  local m, p = leak(burst - need, requests, window)
  return micros < m or micros == m and part <= p, gave, micros, part
end

local function settle(requests, window, burst, cost, fits, x, micros, part)
  if cost > 0 then
    local m, p = leak(cost, requests, window)
    m, p = micros + m, part + p
    if p >= requests then m, p = m + 1, p - requests end
    -- Add at most up to twice the capacity, and never remove anything. A sum beyond 2^53 is above that bound
    -- anyway.
    if not fits then
      local most, mostpart = leak(2 * burst, requests, window)
      if m > most or m == most and p > mostpart then m, p = most, mostpart end
      if micros > m or micros == m and part > p then m, p = micros, part end
    end
    micros, part = m, p
  end
  if micros + part == 0 then return nil end
  if part == 0 then return format('b1 %d %d', x, micros), micros end
  return format('b1 %d %d %d %d', x, micros, part, requests), micros + 1
end

return pattern, judge, settle
