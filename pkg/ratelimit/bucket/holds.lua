-- What only takes with holds need: the twin of hold.go. The live holds of a bucket are in a hash beside it. The field
-- of an id has "cost expires " for each of its holds, the first to expire first. The cost of a hold that a floor has
-- restored has a leading 0: another replica may have settled it, so its expiry charges nothing. "h1 units number first
-- last until|" precedes the text of the bucket, which may be empty then. No hold expires before first, and none after
-- last. The whole hash is read only if a hold may have expired or lives too long: then the numbers become exact. Text
-- and hash matter until the step of the time until.
local SUMS = '^h1 (%d+) (%d+) (%d+) (%d+) (%d+)|()'
local HOLDS = '<dddddddBI4I4I4I4'
local HOLD, HOLD_BYTES = '<c16dd', 32
local PAIR = '^(%d+) (%d+) ()'
local FIELDS = 1000 -- of one command, because Lua does not pass any number of arguments
local LISTED = 10000 -- holds of a bucket in an answer, at most
local UNUSABLE = 3 -- in floor.lua
local unpack_list = _G.unpack

-- MULDIV

-- read reads the holds of a take (Hold.appendArgs). It returns them, and where the next take begins.
local function read(key, from)
  local h = {
    key = key, values = {}, changes = {}, sums = '', units = 0, number = 0, last = 0, settled = 0, unknown = 0,
    expired = 0,
  }
  h.ttl, h.most, h.capacity, h.unit, h.unit_part, h.cost, h.cost_part, h.release, h.reserves, h.settles, h.floors,
    h.unsent, h.from = unpack(HOLDS, args, from)
  return h, h.from + HOLD_BYTES * (h.reserves + h.settles + h.floors + h.unsent)
end

-- strip takes the numbers from the text of a bucket. It returns the rest, or nil for none.
local function strip(h, text)
  local units, number, first, last, till, rest = match(text or '', SUMS)
  if not units then return text or nil end
  h.units, h.number, h.first, h.last, h.was = units + 0, number + 0, first + 0, last + 0, till + 0
  h.sums = sub(text, 1, rest - 1)
  return rest <= #text and sub(text, rest) or nil
end

-- holds_of returns the value of an id.
local function holds_of(h, id)
  local value = h.values[id]
  if not value then
    value = call('HGET', h.key, id) or ''
    if type(value) == 'table' then h.err, value = value.err, '' end
    h.values[id] = value
  end
  return value
end

-- find returns the cost of a hold of an id, or of the first one if expires is 0, and where it begins and ends in the
-- value.
local function find(value, expires)
  local from = 1
  while true do
    local cost, e, after = match(value, PAIR, from)
    if not cost then return nil end
    if expires == 0 or e + 0 == expires then return cost + 0, from, after end
    from = after
  end
end

local function put(h, id, value) h.values[id], h.changes[id] = value, value end

-- add adds a hold. mark is '0' for one that is restored, else ''.
local function add(h, id, cost, expires, mark)
  local value, from = holds_of(h, id), 1
  local _, e, after
  if expires >= h.last then -- as a new one does
    from = #value + 1
  else
    repeat
      from = after or from
      _, e, after = match(value, PAIR, from)
    until not e or e + 0 > expires
  end
  put(h, id, sub(value, 1, from - 1) .. format('%s%d %d ', mark, cost, expires) .. sub(value, from))
  h.units, h.number = h.units + cost, h.number + 1
  if not h.first or expires < h.first then h.first = expires end
  if expires > h.last then h.last = expires end
end

-- span returns units as the algorithm counts them. More than twice the capacity and 1 are as many.
local function span(h, units)
  if units > 2 * h.capacity + 1 then units = 2 * h.capacity + 1 end
  if h.unit_part == 0 then return units * h.unit, 0 end
  local more, part = muldiv(units, h.unit_part, h.requests)
  return units * h.unit + more, part
end

-- charge charges a bucket, and gives back a refund first, at a time that is not before the last charge. It returns the
-- new text, whether the bucket has changed (nil: it is unreadable), and until when the new text matters.
local function charge(h, at, text, cost, cost_part, refund, refund_part, since)
  local last, a, b, c, d
  if text then
    last, a, b, c, d = match(text, pattern)
    last = last + 0
    if last > at then at = last end
  end
  local fits, gave, _
  fits, gave, _, a, b, c, d =
    judge(h.requests, h.window, 0, 0, refund, refund_part, since, at, last or at, text, a, b, c, d)
  if fits == nil then return text, nil end
  if not gave and cost + cost_part == 0 then return text, false end
  local till
  text, till = settle(h.requests, h.window, cost, cost_part, h.most_units, h.most_part, at, a, b, c, d)
  return text or nil, text ~= false or nil, till
end

-- scan reads all holds and makes the numbers exact. It cuts the holds to the time latest, and drops those that have
-- expired at the time x, or only the restored ones of them. It returns the cost and the expiry of each of these.
local function scan(h, x, latest, restored)
  local all, ended = call('HGETALL', h.key), {}
  if all.err then
    h.err = all.err
    return ended
  end
  for i = 1, #all, 2 do h.values[all[i]] = h.values[all[i]] or all[i + 1] end
  h.units, h.number, h.first, h.last, h.was = 0, 0, nil, 0, nil
  for id, value in pairs(h.values) do
    local kept, changed = {}, false
    for cost, expires in string.gmatch(value, '(%d+) (%d+) ') do
      local c, e = cost + 0, expires + 0
      if e > latest then
        e, expires, changed = latest, format('%d', latest), true
      end
      local mark = e <= x and match(cost, '^0')
      if e <= x and (mark or not restored) then
        ended[#ended + 1], changed = {mark and 0 or c, e}, true
      else
        kept[#kept + 1] = cost .. ' ' .. expires .. ' '
        h.units, h.number = h.units + c, h.number + 1
        if not h.first or e < h.first then h.first = e end
        if e > h.last then h.last = e end
      end
    end
    if changed then put(h, id, table.concat(kept)) end
  end
  return ended
end

-- list returns the holds of a bucket for an answer, none of which is ended.
local function list(h)
  local all, hexes = {}, {}
  for i = 0, 255 do hexes[string.char(i)] = format('%02x', i) end
  for id, value in pairs(h.values) do
    local hex = string.gsub(id, '.', hexes)
    for pair in string.gmatch(value, '0?([1-9]%d* %d+) ') do
      if #all < LISTED then all[#all + 1] = ';' .. hex .. ' ' .. pair end
    end
  end
  return table.concat(all)
end

-- finish ends the holds that the settlements of a take end: those that were over before the request, or the others.
local function finish(h, before)
  for i = 0, h.settles - 1 do
    local id, _, expires = unpack(HOLD, args, h.from + HOLD_BYTES * (h.reserves + i))
    if (expires ~= 0) == before then
      local value = h.number > 0 and holds_of(h, id) or ''
      local cost, from, after = find(value, expires > 0 and expires or 0)
      if cost then
        put(h, id, sub(value, 1, from - 1) .. sub(value, after))
        h.units = h.units > cost and h.units - cost or 0
        h.number, h.settled, h.changed = h.number - 1, h.settled + 1, true
        if h.number == 0 then h.first, h.last = nil, 0 end
      elseif expires == 0 then
        h.unknown = h.unknown + 1
      end
    end
  end
end

-- enter does what a take does with holds before it is judged: it adds those of a floor, undoes, ends those that have
-- expired, and settles. It returns the text of the bucket without the holds, nil for an unused one, or a table with an
-- error; the time x of the bucket, and the room that the holds leave.
local function enter(h, noted, algorithm, room, room_part, refund, refund_part, since, now, dry, text)
  if type(text) == 'table' then return text, now end
  text = strip(h, text)
  local shown = text
  if noted then text = prepare(noted, algorithm, h.requests, h.window, refund + refund_part > 0, now, text) or nil end
  local x, last = now, text and match(text, pattern)
  if text and (not last or last + 0 >= WHOLE) then return {err = UNREADABLE}, now end
  if last and last + 0 > now then
    x = last + 0
    if x - now > MAX_CLOCK_STEP then -- the bucket moves with the clock
      local tag, rest = match(text, '^(%w+ )%d+(.*)$')
      x, text, h.changed = now, tag .. format('%d', now) .. rest, true
    end
  end
  for i = 0, h.floors + h.unsent - 1 do
    local id, cost, expires = unpack(HOLD, args, h.from + HOLD_BYTES * (h.reserves + h.settles + i))
    if expires > x and not (noted and noted.fate == UNUSABLE) and not find(holds_of(h, id), expires) then
      add(h, id, cost, expires, i < h.floors and '0' or '')
      h.changed = true
    end
  end
  if dry then
    if h.number > 0 then
      h.changed = #scan(h, x, WHOLE, true) > 0 or h.changed
      h.list = list(h)
    end
    return h.err and h or text, x, 0, 0
  end

  finish(h, true)
  local latest, ok = x + h.ttl, true
  if h.number > 0 and (h.first <= x or h.last > latest) then
    local ended = scan(h, x, latest)
    h.changed, h.expired = true, #ended
    if h.release == 0 then
      table.sort(ended, function(a, b) return a[2] < b[2] end)
      for i = 1, #ended do
        local cost, part = span(h, ended[i][1])
        text, ok = charge(h, ended[i][2], text, cost, part, 0, 0, 0)
        if ok == nil then return {err = UNREADABLE}, now end
      end
    end
  end
  h.same = text == shown and not h.changed
  if refund + refund_part + h.cost + h.cost_part > 0 then
    text, h.charged = charge(h, x, text, h.cost, h.cost_part, refund, refund_part, since)
    if h.charged == nil then return {err = UNREADABLE}, now end
    h.changed = h.changed or h.charged
  end
  finish(h, false)
  if h.reserves > 0 then holds_of(h, (unpack(HOLD, args, h.from))) end -- an error must come before anything is written
  if h.err then return h, now end

  h.x = x
  if room == WHOLE then return text, x, room, 0 end -- it always fits
  if h.units > h.capacity or h.reserves > 0 and h.number + h.reserves > h.most then return text, x, -1, 0 end
  local micros, part = span(h, h.units)
  room, room_part = room - micros, room_part - part
  if room_part < 0 then room, room_part = room - 1, room_part + h.requests end
  return text, x, room, room_part
end

-- leave ends the decision on a take. text is that of the bucket without its holds, and matters until the time till. The
-- one that was read mattered until the time mattered. leave returns both times with the holds, nil for one that is not
-- known. reserve means that the reserves become holds.
local function leave(h, text, till, mattered, reserve)
  for i = 0, reserve and h.reserves - 1 or -1 do
    local id, cost = unpack(HOLD, args, h.from + HOLD_BYTES * i)
    add(h, id, cost, h.x + h.ttl, '')
    h.changed = true
  end
  if h.settled + h.unknown + h.expired > 0 then h.tally = format('%d %d %d ', h.settled, h.unknown, h.expired) end
  if not h.changed then return till, mattered end
  if h.was then
    mattered = h.was
  elseif not h.same or h.charged then
    mattered = nil
  end
  h.sums = ''
  if h.number > 0 then
    local ends = h.last
    if h.release == 0 then -- once they have expired, they matter as long as their charge does
      local cost, part, _ = span(h, h.units)
      _, _, ends = charge(h, ends, text, cost, part, 0, 0, 0)
      local bounds = type(h.window) == 'table' and h.window -- later days can be longer
      if bounds then ends = math.max(ends, h.last + bounds[4] - bounds[3]) + 7200000000 end
    end
    if not till or ends > till then till = ends end
    h.sums = format('h1 %d %d %d %d %d|', h.units, h.number, h.first, h.last, till - till % STEP)
  end
  return till, mattered
end

-- record writes what has changed of the holds. kept means that the text expires when it did before. It returns an error
-- of Redis, or nil.
local function record(h, now, timed, kept)
  local fields, gone, failed = {}, {}, nil
  local function write(command, list, least)
    if failed or #list < least then return end
    local done = call(command, h.key, unpack_list(list))
    for i = #list, 1, -1 do list[i] = nil end
    failed = type(done) == 'table' and done or nil
  end
  if h.number <= 0 then
    if next(h.changes) then write('DEL', fields, 0) end
    return failed
  end
  for id, value in pairs(h.changes) do
    if value == '' then
      gone[#gone + 1] = id
    else
      fields[#fields + 1], fields[#fields + 2] = id, value
      write('HSET', fields, FIELDS)
    end
  end
  write('HSET', fields, 1)
  for i = 1, #gone, FIELDS do -- afterwards, because a hash without fields would lose its expiry
    write('HDEL', {unpack_list(gone, i, math.min(i + FIELDS - 1, #gone))}, 1)
  end
  if not kept or not h.was then
    local slack = timed and WRITTEN_FOR_TEST or WRITTEN_FOR
    write('PEXPIRE', {format('%d', (h.till + STEP - now) / 1000 + slack)}, 1)
  end
  return failed
end

return read, enter, leave, record
