-- Decides a batch of requests, each all or nothing by itself, as Request.Decide does (request.go). It reads and checks
-- a request as a whole before it writes anything of it. A request that fails leaves its buckets and other requests
-- unchanged.
--
-- KEYS     the keys of all takes of all requests, in order. Then, in reverse order, the name of the note of each take
--          that has one, and of the hash of each take with holds.
-- ARGV[1]  a text that is sent back, so that the caller knows whose answer it holds.
-- ARGV[2]  the takes of all requests, in order (Request.AppendArgs).
--
-- Returns one line for ARGV[1] and the clock, and one for each request (Request.Decode):
--   + or -   allowed or denied; then for each take a tab, a digit and the new text of its bucket. The digit is 1 or 0
--            (it fits or not), and twice what became of the floor (Fate). If holds have ended, how many is between both
--            (Held.parse).
--   !        not charged; then the number of the take that failed, and the error
--   ?        the same, but an earlier take of the request may have been charged
--
-- A bucket is stored as a text: a tag of the algorithm and its version, the time of the last write, and the fields of
-- the algorithm. All numbers are whole and below 2^53. A double holds them exactly, and a % b is exact: no quotient is
-- rounded up to a whole number. "%d" prints them exactly where a C long has 64 bits, in half the time of "%.0f".

local keys, args = KEYS, ARGV[2]
local call, unpack = redis.pcall, struct.unpack
local format, match, sub = string.format, string.match, string.sub
local type = type

local WHOLE = 9007199254740992 -- from here on, a double does not hold every whole number
local MOST = 8589934590 -- the most units of one window in a bucket: twice the largest limit

-- engine makes the functions of one algorithm when it is needed: to make all of them costs each call half a
-- microsecond. It returns
--   pattern  of the texts: captures the time of the last write and up to four more texts a, b, c, d
--   judge    (requests, window, room, room_part, refund, refund_part, since, x, last, value, a, b, c, d): brings the
--            bucket forward from last to x and gives back the refund: if since (Take.ChargedAt) is not 0, only what the
--            bucket still holds of it. It returns whether the bucket then holds at most room (nil: it is unreadable),
--            whether it gave anything back, until when the text matters that was read, and a, b, c, d as they are now,
--            as numbers. a is nil for an unused bucket.
--   settle   (requests, window, cost, cost_part, most, most_part, x, a, b, c, d): charges the cost, if most is set at
--            most up to that. It returns the text to store (nil: the bucket is empty, false: the value is unreadable)
--            and until when it matters.
--   view     optional (requests, window, room, fits, x, value): returns the part of a long text that the caller needs
-- If merging is set, it returns one function instead: (x, a, b, c, d, those of a floor, cut) returns the larger of each
-- part, all at the time x, or nil if a text in them is unreadable. cut is nil, or the time of a floor that was cut.
local function engine(algorithm, merging)
  -- ENGINES
end

local WRITTEN_FOR = 1000 -- ms that a text outlives its use, so that expiry never decides
local WRITTEN_FOR_TEST = 5000 -- for an injected time, which may pass more slowly than Redis' own
-- An expiry moves in steps of these µs, because most charges can then keep it: to set one is half of what SET costs. A
-- step is shorter than WRITTEN_FOR, for which earlier versions write a text.
local STEP = 500000
local MAX_CLOCK_STEP = 2000000
local UNREADABLE = 'UNREADABLE the value is not one of ours'

-- The kind of a take: another one of the request follows, its details follow, the time of the request follows; or it
-- stands for a request without takes. With DRY, nothing of the request is written, and its texts are sent whole. With
-- CALENDAR, the beginnings of four windows follow, in place of the length of one. With HOLDING, holds follow last.
local MORE, DETAILED, TIMED, NONE, DRY, CALENDAR, HOLDING = 1, 2, 4, 8, 16, 32, 64
local SHADOW, QUOTA, FLOOR, NOTED = 1, 2, 4, 8
local TAKE = '<BBdddddd'
local DETAILS = '<BBddddd'
local FLOOR_OF_TAKE = '<BdI4c0' -- whether it was cut, its time and its text
local KEPT, DROPPED = 1, 2 -- in place of when a text expires: when it expired before, now

local clock -- read once, so that all requests of a batch are decided at the same time
local lines, line = {''}, 1
local engines = {}
local current, pattern, judge, settle, view
local step, expiry = nil, '' -- the last step, and when a text expires that matters until then
local texts, marks, expiries = {}, {}, {} -- of the takes of a request before its last one
local k, pos = 0, 1
local note, prepare, remember -- once a take has a note
local read_holds, enter, leave, record -- once a take has holds

while pos <= #args do
  local first_key, first_pos, first_note = k, pos, note
  local now, timed, dry, failure = clock, false, false, nil
  local notes, holds, views -- by the index of the take
  local takes, text, mark, expires, detailed
  local allowed, assumed = true, nil

  -- Read and judge the takes, and charge them as those of an allowed request. If it is denied, do so again, as those of
  -- a denied one: nothing has been written yet. The last take stays in these variables, so that most requests need no
  -- table.
  repeat
    assumed, takes, k, pos, note = allowed, 0, first_key, first_pos, first_note
    notes, holds, views = nil, nil, nil
    local denied, quotas, over = false, 0, 0
    repeat
      if takes > 0 then texts[takes], marks[takes], expiries[takes] = text, mark, expires end
      takes, k, detailed = takes + 1, k + 1, false
      local kind, algorithm, requests, window, cost, cost_part, room, room_part, after = unpack(TAKE, args, pos)
      pos = after
      local role, counted, most, most_part, refund, refund_part, since = 0, 0, nil, nil, 0, 0, 0
      local noted, held
      if kind > MORE then
        if kind >= HOLDING then kind, held = kind - HOLDING, true end
        if kind >= CALENDAR then
          kind, window = kind - CALENDAR, {unpack('<dddd', args, pos)}
          pos = window[5]
        end
        if kind >= DRY then kind, dry = kind - DRY, true end
        if kind == NONE then kind, takes, k = 0, 0, first_key end
        if kind >= TIMED then
          kind, timed = kind - TIMED, true
          now, pos = unpack('<d', args, pos)
        end
        if kind >= DETAILED then
          kind, detailed = kind - DETAILED, true
          role, counted, most, most_part, refund, refund_part, since, pos = unpack(DETAILS, args, pos)
          if role >= NOTED then
            role, note = role - NOTED, (note or #keys + 1) - 1
            noted, notes = {key = keys[note], fate = 0}, notes or {}
            notes[takes] = noted
            if role >= FLOOR then
              role = role - FLOOR
              noted.cut, noted.at, noted.floor, pos = unpack(FLOOR_OF_TAKE, args, pos)
            end
            if not prepare then -- functions cost each call time, so they are not made before
              prepare, remember = (function()
                -- FLOORS
              end)()
            end
          end
        end
        if held then
          if not enter then
            read_holds, enter, leave, record = (function()
              -- HOLDS
            end)()
          end
          note, holds = (note or #keys + 1) - 1, holds or {}
          held, pos = read_holds(keys[note], pos)
          holds[takes] = held
        end
      end

      if not now then
        local time = call('TIME')
        clock = time[1] * 1000000 + time[2]
        now = clock
      end

      local fits
      expires = nil
      if failure then -- the rest of the request is only skipped
        text = ''
      elseif requests == 0 then -- no take, or a closed bucket: it neither reads nor writes, so a debt survives it
        fits, text = room >= 0, ''
      else
        if algorithm ~= current then
          local e = engines[algorithm]
          if not e then
            e = {engine(algorithm)}
            engines[algorithm] = e
          end
          current, pattern, judge, settle, view = algorithm, e[1], e[2], e[3], e[4]
        end
        text = call('GET', keys[k])
        local x, last, p, q, r, s, moved = now, now, nil, nil, nil, nil, nil
        if held then
          held.room = room
          held.requests, held.window, held.most_units, held.most_part = requests, window, most, most_part
          text, x, room, room_part =
            enter(held, noted, algorithm, room, room_part, refund, refund_part, since, now, dry, text)
          last, refund, refund_part = x, 0, 0
        elseif noted and type(text) ~= 'table' then
          text = prepare(noted, algorithm, requests, window, refund + refund_part > 0, now, text)
        end
        if type(text) == 'table' then
          failure, last = text.err, nil
        elseif text then
          last, p, q, r, s = match(text, pattern)
          if not last and sub(text, 1, 3) == 'h1 ' then -- the limit has no holds any more: they stay until they expire
            held = {}
            held.sums, held.till, text = match(text, '^(h1 %d+ %d+ %d+ %d+ (%d+)|)(.*)$')
            if held.sums and held.till + STEP < now then held.sums = '' end
            if text == '' then text, last = nil, now end
            if text then last, p, q, r, s = match(text, pattern) end
          end
          last = last and last + 0
          if not last or last >= WHOLE then
            failure, last = UNREADABLE, nil
          elseif last > now then
            moved = last - now > MAX_CLOCK_STEP
            if moved then last = now else x = last end -- the bucket moves with the clock after a large step back
          end
        end
        if last then
          local ok, changed, mattered, a, b, c, d =
            judge(requests, window, room, room_part, refund, refund_part, since, x, last, text, p, q, r, s)
          fits = ok
          if moved or noted then -- store what has changed even after a denial
            changed = changed or moved or noted and noted.joined
            if not held or not held.key then mattered = nil end
          end
          if not (assumed and fits) then
            local charged = counted == 1
            if assumed or role == SHADOW then charged = fits or charged and role == SHADOW end
            if not charged then cost, cost_part = 0, 0 end
          end
          if fits == nil then
            failure = UNREADABLE
          elseif changed or held or cost + cost_part > 0 then
            local new, till = text, mattered
            if changed or cost + cost_part > 0 then
              new, till = settle(requests, window, cost, cost_part, not fits and most, most_part, x, a, b, c, d)
              if held then held.changed = true end
            end
            if held and new ~= false then
              if held.key then
                till, mattered = leave(held, new, till, mattered, fits and (assumed or role == SHADOW))
              elseif held.sums ~= '' and (not till or held.till + 0 > till) then
                till = held.till + 0
              end
              if till and till < now then till = now end -- the text is of an earlier time
              held.body, held.till, new = new, till, held.sums .. (new or '') .. (held.list or '')
              if new == '' then new = nil end
            end
            text = new
            if held and not held.changed then
              expires = nil
            elseif not new then
              expires = DROPPED
              if new == false then failure = UNREADABLE end
            elseif timed then
              -- "%d" cuts the fraction off; the 1 more than makes up for it.
              expires = format('%d', (till - now) / 1000 + WRITTEN_FOR_TEST + 1)
            else
              till = till - till % STEP
              if mattered and mattered - mattered % STEP == till then
                expires = KEPT
              else
                if till ~= step then step, expiry = till, format('%d', (till + STEP) / 1000 + WRITTEN_FOR) end
                expires = expiry
              end
            end
          end
          if not text then
            text = ''
          elseif view and not failure and not dry then
            views = views or {}
            if not held then
              views[takes] = view(requests, window, room, fits, x, text)
            elseif held.body then
              views[takes] = held.sums .. view(requests, window, held.room or room, fits, x, held.body, held.units)
            end
          end
        end
        if failure then failure = '!' .. takes .. ' ' .. failure end
      end
      if role == QUOTA then
        quotas = quotas + 1
        if not fits then over = over + 1 end
      elseif not fits and role ~= SHADOW then
        denied = true
      end
      mark = fits and '\t1' or '\t0'
      if noted and noted.fate > 0 then mark = format('\t%d', 2 * noted.fate + (fits and 1 or 0)) end
      if held and held.tally then mark = mark .. held.tally end
    until kind ~= MORE
    allowed = not denied and (quotas == 0 or over < quotas)
  until failure or allowed == assumed or takes == 1 and not detailed

  -- Write and answer, the last take first.
  line = line + 1
  if not failure then
    lines[line] = allowed and '\n+' or '\n-'
    local written = false
    for i = takes, 1, -1 do
      if i < takes then
        text, mark, expires = texts[i], marks[i], expiries[i]
      end
      if expires and not dry then
        local done
        if notes and notes[i] and notes[i].till then done = remember(notes[i], now, timed) end
        if holds and holds[i] and not (done and done.err) then
          done = record(holds[i], now, timed, expires == KEPT)
        end
        if done and done.err then -- without its note, a refund is not given
        elseif expires == KEPT then
          done = call('SET', keys[first_key + i], text, 'KEEPTTL')
        elseif expires == DROPPED then
          done = call('DEL', keys[first_key + i])
        else
          done = call('SET', keys[first_key + i], text, timed and 'PX' or 'PXAT', expires)
        end
        if type(done) == 'table' and done.err then
          -- A replica writes nothing: return its reply as the error of the script, so that the client leaves this
          -- server.
          if sub(done.err, 1, 8) == 'READONLY' then return done end
          failure = (written and '?' or '!') .. i .. ' ' .. done.err
          break
        end
        written = true
      end
      lines[line + 2 * i - 1], lines[line + 2 * i] = mark, views and views[i] or text
    end
  end
  if failure then
    lines[line] = '\n' .. failure
  else
    line = line + 2 * takes
  end
end
lines[1] = format('%s %d', ARGV[1], clock or 0)
return table.concat(lines, '', 1, line)
