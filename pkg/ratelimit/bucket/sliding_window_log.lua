-- The twin of sliding_window_log.go. The text: "s1 time units age span length entries". units are all units in the
-- log. age is the age of the newest entry at the time. span is how long before the newest entry the origin lies.
-- length is the length of the entries in bytes. The entries follow, oldest first, each as "gap:units ", where gap is
-- the time since the entry before it, or since the origin. So appending or dropping entries leaves all others
-- unchanged. A step of the clock moves all entries, but changes only the time in front.
local pattern = '^s1 (%d+) (%d+) (%d+) (%d+) ()'
local LENGTH = '^(%d+) ()'
local ENTRY = '^(%d+):(%d+) ()'
local LAST_ENTRY = '()(%d+):(%d+) $'
local LAST_ENTRY_BYTES = 40 -- no entry is longer
local VIEW_WHOLE = 256 -- a shorter text is not worth cutting, in bytes

if merging then
  -- read returns the times and the units of all entries. Entries of one time are one. It returns nothing if the text is
  -- unreadable.
  local function read(x, count, age, span, entries)
    local times, units, n = {}, {}, 0
    local time, from = x - age - span, 1
    while from <= #entries do
      local gap, cost, after = match(entries, ENTRY, from)
      if not gap then return nil end
      time, count, from = time + gap, count - cost, after
      if n == 0 or times[n] < time then
        n = n + 1
        times[n], units[n] = time, 0
      end
      units[n] = units[n] + cost
    end
    if count ~= 0 or n > 0 and time ~= x - age then return nil end
    return times, units
  end

  -- The larger cost at each time. If the floor was cut, it adds no more units than are missing of the time up to its
  -- own, oldest first.
  return function(x, count, age, span, entries, count2, age2, span2, entries2, cut)
    local times, units = read(x, count, age, span, entries)
    local times2, units2 = read(x, count2, age2, span2, entries2)
    if not times or not times2 then return nil end
    local missing = count2
    for i = 1, cut and #times or 0 do
      if times[i] <= cut then missing = missing - units[i] end
    end
    local i, k, n, merged, sum = 1, 1, 0, {}, 0
    local first, last
    while times[i] or times2[k] do
      local time, cost, theirs = times[i], units[i], 0
      if not time or times2[k] and times2[k] < time then
        time, cost = times2[k], 0
      else
        i = i + 1
      end
      if times2[k] == time then
        theirs, k = units2[k], k + 1
      end
      if theirs > cost and missing > 0 then
        local more = theirs - cost
        if cut and more > missing then more = missing end
        cost, missing = cost + more, missing - more
      end
      if cost > 0 then
        n, sum, first = n + 1, sum + cost, first or time
        merged[n] = format('%d:%d ', time - (last or time), cost)
        last = time
      end
    end
    if sum == count then return count, age, span, entries end
    return sum, x - last, last - first, table.concat(merged)
  end
end

local function judge(_, window, room, _, refund, _, since, x, last, value, count, age, span, rest)
  if not count then return room >= 0, nil, nil, 0, 0, 0, '' end
  local length, from = match(value, LENGTH, rest)
  if not from or #value - from + 1 ~= length + 0 then return nil end
  if count + 0 > MOST or age + span >= WHOLE then return nil end
  local mattered = last - age + window
  count, age = count + 0, age + (x - last)
  if age >= window then return room >= 0, nil, mattered, 0, 0, 0, '' end

  local newest = x - age
  local time = newest - span
  while true do
    local gap, units, after = match(value, ENTRY, from)
    if not gap then return nil end
    if time + gap > x - window then break end
    time, count, from = time + gap, count - units, after
  end
  if count < 1 then return nil end
  local entries = sub(value, from)
  if refund == 0 then return count <= room, nil, mattered, count, age, newest - time, entries end

  if since > x then refund = 0 end -- a large step back of the clock has moved the log since

  -- Set aside the entries that are newer than a charge to give back: newer, the first of them apart.
  local newest_age, newer, newer_gap, newer_units, newer_count = age, '', 0, 0, 0
  while since > 0 and count > 0 and x - age > since do
    local tail = sub(entries, -LAST_ENTRY_BYTES)
    local at, gap, units = match(tail, LAST_ENTRY)
    if not at then return nil end
    if newer_count > 0 then newer = format('%d:%d ', newer_gap, newer_units) .. newer end
    newer_gap, newer_units, newer_count = gap + 0, units + 0, newer_count + units
    entries, count, age = sub(entries, 1, #entries - #tail + at - 1), count - units, age + gap
  end

  -- Newest first.
  local left_age = age
  while refund > 0 and count > 0 do
    local tail = sub(entries, -LAST_ENTRY_BYTES)
    local at, gap, units = match(tail, LAST_ENTRY)
    if not at then return nil end
    local kept = sub(entries, 1, #entries - #tail + at - 1)
    if units + 0 > refund then
      entries, count, refund = kept .. gap .. format(':%d ', units - refund), count - refund, 0
    else
      entries, count, refund, age = kept, count - units, refund - units, age + gap
    end
  end
  if newer_count > 0 then
    entries = entries .. format('%d:%d ', newer_gap + age - left_age, newer_units) .. newer
    count, age = count + newer_count, newest_age
  end
  local left = x - age - time
  if count < 0 or left < 0 then return nil end -- the numbers contradict each other
  return count <= room, true, mattered, count, age, left, entries
end

local function settle(requests, window, cost, _, most, _, x, count, age, span, entries)
  if cost > 0 then
    if most then most = count > requests and count or requests + 1 end
    if count == 0 then
      age, span, entries = 0, 0, ''
    end
    entries = entries .. format('%d:%d ', age, cost)
    count, age, span = count + cost, 0, span + age
    -- Keep only the newest requests + 1 units, because more would not change any decision. If the log held more
    -- before, from a larger limit, it keeps as many as it held: the limit may rise again.
    if most then
      local over, first = count - most, 1
      if over > 0 then count = most end
      while over > 0 do
        local gap, units, after = match(entries, ENTRY, first)
        if not gap or span - gap < 0 then return false end
        if units + 0 > over then
          entries, first, over = gap .. format(':%d ', units - over) .. sub(entries, after), 1, 0
        else
          span, first, over = span - gap, after, over - units
        end
      end
      entries = sub(entries, first)
    end
  end
  if count == 0 then return nil end
  return format('s1 %d %d %d %d %d ', x, count, age, span, #entries) .. entries, x - age + window
end

-- view cuts a long text after the entries that must leave to make room for need, and for one unit more than fits now
-- beside the units that are held.
local function view(requests, window, room, fits, x, value, held)
  if #value <= VIEW_WHOLE then return value end
  local last, count, age, span, rest = match(value, pattern)
  local _, from = match(value, LENGTH, rest)
  local time = last - age - span
  count = count + 0
  local free
  while count > 0 do
    local gap, units, after = match(value, ENTRY, from)
    if not gap then break end
    time, from = time + gap, after
    if time > x - window then
      free = free or (count < requests and requests - count or 0)
      if held and held > free and held < requests then free = held end
      count = count - units
      if count + free < requests and (fits or room < 0 or count <= room) then break end
    else
      count = count - units
    end
  end
  return sub(value, 1, from - 1)
end

return pattern, judge, settle, view
