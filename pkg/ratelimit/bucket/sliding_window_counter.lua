-- The twin of sliding_window_counter.go. The text: "c1 time current previous". current is the count of the window that
-- contains the time, previous that of the window before.
local pattern = '^c1 (%d+) (%d+) (%d+)$'

if merging then
  return function(_, current, previous, _, _, current2, previous2)
    return current > current2 and current or current2, previous > previous2 and previous or previous2
  end
end

-- fades_to returns the first instant of a window at which the weight of the previous one, p > left units, is down to
-- left units: ceil((p - left) * window / p).
local function fades_to(left, p, window)
  local r = fmod(window, p)
  local more, part = muldiv(p - left, r, p)
  return (p - left) * ((window - r) / p) + more + (part > 0 and 1 or 0)
end

local function judge(requests, window, _, refund, _, since, need, x, last, _, current, previous)
  if not current then return need <= requests, nil, 0, 0 end
  current, previous = current + 0, previous + 0
  if current > MOST or previous > MOST then return nil end
  local gave
  local into = fmod(x, window)
  local forward = x - into - (last - fmod(last, window))
  if forward ~= 0 then
    current, previous = 0, forward == window and current or 0
  end
  if refund > 0 and current + previous > 0 then
    gave = true
    local charged = since > 0 and x - into - (since - fmod(since, window)) or 0 -- how long before the window of x
    local older = refund > current and refund - current or 0
    if charged == 0 then current = current - refund + older end
    if charged == window then older = refund end
    if since == 0 or charged == window then previous = previous > older and previous - older or 0 end
  end
  local left = requests - current - need
  return left >= 0 and (previous <= left or into >= fades_to(left, previous, window)), gave, current, previous
end

local function settle(requests, window, _, cost, fits, x, current, previous)
  if cost > 0 then
    local sum = current + cost
    if not fits and sum > 2 * requests then
      sum = current > 2 * requests and current or 2 * requests
    end
    current = sum
  end
  if current + previous == 0 then return nil end
  return format('c1 %d %d %d', x, current, previous), (current > 0 and 2 or 1) * window - fmod(x, window)
end

return pattern, judge, settle
