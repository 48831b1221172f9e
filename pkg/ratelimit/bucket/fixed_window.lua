-- The twin of fixed_window.go. The text: "f1 time count". The count belongs to the window that contains the time.
local pattern = '^f1 (%d+) (%d+)$'

if merging then
  return function(_, count, _, _, _, other) return count > other and count or other end
end

local function judge(requests, window, _, refund, _, since, need, x, last, _, count)
  if count and count + 0 > MOST then return nil end
  local gave
  count = count and count + 0 or 0
  if x - fmod(x, window) ~= last - fmod(last, window) then count = 0 end
  if refund > 0 and count > 0 then
    gave = true
    if since == 0 or since - fmod(since, window) == x - fmod(x, window) then
      count = count > refund and count - refund or 0
    end
  end
  return count + need <= requests, gave, count
end

local function settle(requests, window, _, cost, fits, x, count)
  if cost > 0 then
    local sum = count + cost
    if not fits and sum > 2 * requests then
      sum = count > 2 * requests and count or 2 * requests
    end
    count = sum
  end
  if count == 0 then return nil end
  return format('f1 %d %d', x, count), window - fmod(x, window)
end

return pattern, judge, settle
