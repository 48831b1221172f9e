-- The twin of concurrency.go: nothing is counted, so there is no text, and no floor to join.
local pattern = '^[^%z%Z](%d+)' -- matches nothing

return pattern, function(_, _, room) return room >= 0 end, function() return nil end
