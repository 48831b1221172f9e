-- The twin of leaky_bucket.go. The text: "b1 time micros", where micros is the time until the bucket is empty. If that
-- has a fraction, " part rate" follows: the numerator, and the requests in a window of the limit that it belongs to.
-- Costs, rooms and refunds are times, too: µs and parts.
local pattern = '^b1 (%d+) (%d+)(.*)$'
local FRACTION = '^ (%d+) (%d+)$'

if merging then
  return function(_, micros, part, _, _, micros2, part2)
    if micros2 > micros or micros2 == micros and part2 > part then return micros2, part2 end
    return micros, part
  end
end

local function judge(requests, _, room, room_part, refund, refund_part, since, x, last, _, micros, fraction)
  if not micros then return room >= 0, nil, nil, 0, 0 end
  local part, gave = 0, nil
  micros = micros + 0
  if micros >= WHOLE then return nil end
  local mattered = last + micros
  if fraction ~= '' then
    local p, rate = match(fraction, FRACTION)
    if not p or rate + 0 > MOST or p + 0 >= rate + 0 then return nil end
    mattered = mattered + 1
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
  return micros < room or micros == room and part <= room_part, gave, mattered, micros, part
end

local function settle(requests, _, cost, cost_part, most, most_part, x, micros, part)
  if cost + cost_part > 0 then
    local m, p = micros + cost, part + cost_part
    if p >= requests then m, p = m + 1, p - requests end
    -- Never remove anything. A sum beyond 2^53 is above the most anyway.
    if most then
      if m > most or m == most and p > most_part then m, p = most, most_part end
      if micros > m or micros == m and part > p then m, p = micros, part end
    end
    micros, part = m, p
  end
  if micros + part == 0 then return nil end
  if part == 0 then return format('b1 %d %d', x, micros), x + micros end
  return format('b1 %d %d %d %d', x, micros, part, requests), x + micros + 1
end

return pattern, judge, settle
