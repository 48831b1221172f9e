-- The twin of fixed_window.go for a Calendar: fixed_window.lua with the times since the beginning of a window. In place
-- of the length of a window it gets the beginnings of four windows in a row.
if merging then return engine(5, true) end -- fixed_window
local pattern, judge, settle = engine(5)

-- within returns the beginning and the end of the window that contains a time. Beyond the windows that are known, the
-- nearest one repeats: then the clocks of the caller and of Redis are more than a window apart.
local function within(bounds, x)
  local i = x < bounds[2] and 1 or x < bounds[3] and 2 or 3
  local length = bounds[i + 1] - bounds[i]
  local begin = x - (x - bounds[i]) % length
  return begin, begin + length
end

return pattern, function(requests, bounds, room, room_part, refund, refund_part, since, x, last, value, count)
  local begin, ends = within(bounds, x)
  if since > 0 then since = since - begin end -- 0 is then the beginning, of which the bucket still holds all
  local fits, gave, mattered, left = judge(requests, ends - begin, room, room_part, refund, refund_part, since,
    x - begin, last - begin, value, count)
  return fits, gave, mattered and begin + mattered, left
end, function(requests, bounds, cost, cost_part, most, most_part, x, count)
  local _, ends = within(bounds, x)
  local text = settle(requests, ends, cost, cost_part, most, most_part, x, count)
  return text, text and ends
end
