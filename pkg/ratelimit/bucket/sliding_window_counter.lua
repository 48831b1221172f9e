-- The twin of sliding_window_counter.go. The text: "c1 time current previous". current is the count of the window that
-- contains the time, previous that of the window before.
local pattern = '^c1 (%d+) (%d+) (%d+)$'

if merging then
  return function(_, current, previous, _, _, current2, previous2)
    return current > current2 and current or current2, previous > previous2 and previous or previous2
  end
end

-- MULDIV

-- fades_to returns the first instant of a window at which the weight of the previous one, p > left units, is down to
-- left units: ceil((p - left) * window / p).
local function fades_to(left, p, window)
  local r = window % p
  local more, part = muldiv(p - left, r, p)
  return (p - left) * ((window - r) / p) + more + (part > 0 and 1 or 0)
end

local function judge(_, window, room, _, refund, _, since, x, last, _, current, previous)
  if not current then return room >= 0, nil, nil, 0, 0 end
  current, previous = current + 0, previous + 0
  if current > MOST or previous > MOST then return nil end
  local gave
  local into = x % window
  local begun = last - last % window
  local mattered = begun + (current > 0 and 2 or 1) * window
  local forward = x - into - begun
  if forward ~= 0 then
    current, previous = 0, forward == window and current or 0
  end
  if refund > 0 and current + previous > 0 then
    gave = true
    local charged = since > 0 and x - into - (since - since % window) or 0 -- how long before the window of x
    local older = refund > current and refund - current or 0
    if charged == 0 then current = current - refund + older end
    if charged == window then older = refund end
    if since == 0 or charged == window then previous = previous > older and previous - older or 0 end
  end
  local left = room - current
  return left >= 0 and (previous <= left or into >= fades_to(left, previous, window)), gave, mattered, current, previous
end

local function settle(_, window, cost, _, most, _, x, current, previous)
  if cost > 0 then
    local sum = current + cost
    if most and sum > most then sum = current > most and current or most end
    current = sum
  end
  if current + previous == 0 then return nil end
  return format('c1 %d %d %d', x, current, previous), x - x % window + (current > 0 and 2 or 1) * window
end

return pattern, judge, settle
