-- The twin of fixed_window.go. The text: "f1 time count". The count belongs to the window that contains the time.
local pattern = '^f1 (%d+) (%d+)$'
local MOST = 1999999999999998 -- twice the largest limit of a fixed window

if merging then
  return function(_, count, _, _, _, other) return count > other and count or other end
end

local function judge(_, window, room, _, refund, _, since, x, last, _, count)
  if not count then return room >= 0, nil, nil, 0 end
  count = count + 0
  if count > MOST then return nil end
  local gave
  local ends, mattered = x - x % window, last - last % window
  if ends ~= mattered then count = 0 end
  if refund > 0 and count > 0 then
    gave = true
    if since == 0 or since - since % window == ends then count = count > refund and count - refund or 0 end
  end
  return count <= room, gave, mattered + window, count
end

local function settle(_, window, cost, _, most, _, x, count)
  if cost > 0 then
    local sum = count + cost
    if most and sum > most then sum = count > most and count or most end
    count = sum
  end
  if count == 0 then return nil end
  return format('f1 %d %d', x, count), x - x % window + window
end

return pattern, judge, settle
