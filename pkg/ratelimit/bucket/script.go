package bucket

import (
	"cmp"
	"embed"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// lua holds the twins of request.go and of the Go file of each algorithm.
//
//go:embed *.lua
var lua embed.FS

// twin returns the Lua file of a name. It panics if the file is missing: an algorithm was added without it.
func twin(name string) string {
	text, err := lua.ReadFile(name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Script returns the Lua script that decides a batch of requests within Redis (7 or later, or Valkey), all at one time
// of one clock. Its keys are first the keys of all takes, in order. Then follow, in reverse order, the name of the note
// of each take that is Noted, and of the hash of each that is Holding. It has two arguments: a line that is sent back,
// and the concatenated AppendArgs of the requests. It returns a text: first that line, a space and the clock in µs (0
// if no request needs it). A line for each request follows, which Decode reads. A replica returns Redis' error READONLY
// and charges nothing.
func Script() string {
	var choice strings.Builder
	word := "if"
	for a := Algorithm(1); a.known(); a++ {
		fmt.Fprintf(&choice, "%s algorithm == %d then\n%s", word, a, twin(cmp.Or(registry[a].twin, a.String())))
		word = "elseif"
	}
	choice.WriteString("end\n")
	parts := strings.NewReplacer("-- ENGINES\n", choice.String(), "-- FLOORS\n", twin("floor"),
		"-- HOLDS\n", twin("holds"))
	return strings.ReplaceAll(parts.Replace(twin("request")), "-- MULDIV\n", twin("muldiv"))
}

// The kinds of a take in the script, which add up.
const (
	more     byte = 1 << iota // another take of the request follows.
	detailed                  // its details follow.
	timed                     // the time of the request follows.
	none                      // a request without takes.
	dry                       // the request only shows its buckets.
	calendar                  // its windows follow.
	holding                   // its holds follow.
)

// takeBytes is the length of a take without details.
const takeBytes = 50

// These are added to the role of a take with a note, and with a floor.
const withFloor, withNote = 4, 8

// Notes is whether a script call has notes.
type Notes bool

const (
	// WithNotes means that the keys have the name of the note of each take that is Noted.
	WithNotes Notes = true
	// WithoutNotes means that the keys have no notes. No floor is sent, and no refund is noted.
	WithoutNotes Notes = false
)

// Noted reports whether the take needs the note of its bucket. A refund writes it, and voids the floors from before the
// refund. A floor reads it.
func (t *Take) Noted() bool { return t.Limit.Requests > 0 && (t.Floor != nil || t.Refund > 0) }

// Holding reports whether the take needs the hash with the holds of its bucket.
func (t *Take) Holding() bool { return t.Limit.Requests > 0 && t.Hold != nil }

// AppendArgs appends the takes of the request in the format of the script. The keys are not part of it. near is about
// the time of the decision, in µs since 1970. Of a calendar, the windows around it are sent, and the script's clock
// chooses. Request.At, if set, takes its place.
func (r *Request) AppendArgs(b []byte, notes Notes, near int64) []byte {
	if len(r.Takes) == 0 {
		return append(append(b, none), make([]byte, takeBytes-1)...)
	}
	for i := range r.Takes {
		t, kind := &r.Takes[i], byte(0)
		if r.Dry {
			kind, t = dry, &Take{Limit: t.Limit, Floor: t.Floor, Hold: t.Hold.Terms()}
		}
		noted := bool(notes) && r.Takes[i].Noted()
		if i < len(r.Takes)-1 {
			kind |= more
		}
		if noted || t.CountDenied || t.Role != Enforce || t.Refund > 0 || t.Holding() {
			kind |= detailed
		}
		if t.Holding() {
			kind |= holding
		}
		if i == 0 && r.At != 0 {
			kind |= timed
		}
		if t.Limit.Calendar != nil {
			kind |= calendar
		}
		cost, room := t.scriptArgs()
		b = append(b, kind, byte(t.Limit.Algorithm))
		b = appendFloat(b, t.Limit.Requests)
		b = appendFloat(b, t.Limit.Window)
		b = appendSpan(appendSpan(b, cost), room)
		if kind&calendar != 0 {
			for _, begin := range t.Limit.Calendar.Bounds(cmp.Or(r.At, near)) {
				b = appendFloat(b, begin)
			}
		}
		if kind&timed != 0 {
			b = appendFloat(b, r.At)
		}
		if kind&detailed != 0 {
			b = t.appendDetails(b, noted)
		}
		if kind&holding != 0 {
			b = t.appendHolds(b, noted)
		}
	}
	return b
}

const (
	// mostTakeBytes is more than a take has in an answer: a text of a bucket, or an error without the key.
	mostTakeBytes = 512
	// mostGrantBytes is the most bytes of an entry of a log.
	mostGrantBytes = 40
	// mostListed is how many holds of a bucket an answer lists, and mostHoldBytes the most bytes of one.
	mostListed, mostHoldBytes = 10_000, 80
)

// MostBytes returns the most bytes of the line that the script answers to the request. An error may name the key. The
// limit of a log may have been larger before.
func (r *Request) MostBytes() int {
	n := len("\n+")
	for i := range r.Takes {
		n += mostTakeBytes + len(r.Takes[i].Key)
		if r.Takes[i].Limit.Algorithm.HasGrants() {
			n += (MaxLogRequests + 1) * mostGrantBytes
		}
		if r.Dry && r.Takes[i].Holding() {
			n += mostListed * mostHoldBytes
		}
	}
	return n
}

// scriptArgs returns the cost, and the most that the bucket may hold for the take to fit. That is negative if the take
// can never fit. See counted.
func (t *Take) scriptArgs() (cost, room span) {
	l, need := &t.Limit, t.room()
	switch {
	case t.alwaysFits(need):
		return span{}, span{micros: longest}
	case need > t.Capacity():
		return l.counted(int64(t.Cost)), span{micros: -1}
	}
	return l.counted(int64(t.Cost)), l.counted(l.Capacity() - need)
}

// counted returns units as the algorithm counts them: as units, or as the time in which they leak.
func (l *Limit) counted(units int64) span {
	if l.Algorithm.HasBurst() && l.Requests > 0 {
		return l.leak(units)
	}
	return span{micros: units}
}

// appendDetails appends what the usual take does not have.
func (t *Take) appendDetails(b []byte, noted bool) []byte {
	role, counted := byte(t.Role), byte(0)
	if t.CountDenied {
		counted = 1
	}
	if noted {
		role += withNote
		if t.Floor != nil {
			role += withFloor
		}
	}
	b = append(b, role, counted)
	l, refund := &t.Limit, int64(t.Refund)
	switch {
	case l.Requests == 0:
		refund = 0
	case !l.Algorithm.HasBurst(): // no bucket holds more than twice the most in a window, or counts more than two windows
		refund = min(refund, 4*max(MaxRequests, registry[l.Algorithm].most))
	}
	b = appendSpan(b, l.counted(2*l.Capacity())) // up to which counted denials add up
	b = appendSpan(b, l.counted(refund))
	b = appendFloat(b, t.ChargedAt)
	if noted && t.Floor != nil {
		b = t.Floor.appendArgs(b, t.Limit.Algorithm)
	}
	return b
}

// appendHolds appends the holds that the take asks for, and those of its floor. A unit is sent as the algorithm counts
// it, because only the script knows how many units are held.
func (t *Take) appendHolds(b []byte, noted bool) []byte {
	l, h, release, floor, unsent := &t.Limit, t.Hold, byte(0), []HoldCost(nil), []HoldCost(nil)
	if h.Release {
		release = 1
	}
	if noted && t.Floor != nil {
		floor, unsent = t.Floor.State.Holds.Live(), t.Floor.Unsent.Live()
	}
	b = appendFloat(appendFloat(appendFloat(b, h.TTL), h.Most), l.Capacity())
	b = appendSpan(appendSpan(b, l.counted(1)), l.counted(h.Settled(2*max(MaxRequests, registry[l.Algorithm].most))))
	_, reserves := h.reserved()
	b = append(b, release)
	for _, n := range [...]int{int(reserves), len(h.Settles), len(floor), len(unsent)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	for i, costs := range [...][]HoldCost{h.Reserves, h.Settles, floor, unsent} {
		for _, c := range costs {
			if i > 0 || c.Cost > 0 {
				b = appendFloat(appendFloat(append(b, c.ID[:]...), int64(c.Cost)), c.Expires)
			}
		}
	}
	return b
}

// appendArgs appends the floor in the format of the script.
func (f *Floor) appendArgs(b []byte, a Algorithm) []byte {
	cut := byte(0)
	if f.Cut {
		cut = 1
	}
	b = appendFloat(append(b, cut), f.At)
	b = append(b, 0, 0, 0, 0)
	text := len(b)
	b = f.appendText(b, a)
	binary.LittleEndian.PutUint32(b[text-4:], uint32(len(b)-text))
	return b
}

func appendSpan(b []byte, s span) []byte { return appendFloat(appendFloat(b, s.micros), s.part) }

// appendFloat appends a Lua number, a double. It is exact: all numbers of a checked limit are below 2^53.
func appendFloat(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

// Decode reads the script's line for the request and fills in the outcome. The line holds the verdicts and the states
// of the buckets; Decode computes the rest. If Decode returns an error, the outcome has no meaning. An error of the
// script is a *ScriptError.
func (r *Request) Decode(line string, reply Reply, o *Outcome) error {
	now := reply.Clock
	if r.At != 0 {
		now = r.At
	}
	if line == "" {
		return fmt.Errorf("no answer")
	}
	verdict := line[0]
	if verdict == '!' || verdict == '?' {
		return r.scriptError(line[1:], verdict == '?')
	}
	rest := line[1:]
	decisions := o.begin(len(r.Takes))
	o.Seen, o.Allowed = slices.Grow(o.Seen, len(r.Takes))[:len(r.Takes)], verdict == '+'
	var w waits
	for i := range r.Takes {
		t, d, b := &r.Takes[i], &decisions[i], &o.Seen[i]
		if len(rest) < 2 { // a tab, and a digit
			return fmt.Errorf("an answer for %d buckets instead of %d: %q", i, len(r.Takes), line)
		}
		digit, text := rest[1]-'0', rest[2:]
		if rest = ""; i < len(r.Takes)-1 {
			if end := strings.IndexByte(text, '\t'); end >= 0 {
				text, rest = text[:end], text[end:]
			}
		}
		d.Allowed, b.Floor = digit&1 == 1, Fate(digit>>1)
		var err error
		if d.Held = nil; t.Hold != nil {
			d.Held = new(Held)
			text = d.Held.parse(text)
		}
		if b.Cut, err = b.State.parse(t.Limit.Algorithm, text); err != nil {
			return err
		}
		b.Reply, b.Clock = reply, now
		if t.Hold == nil { // those of a limit that has none any more do not count
			b.State.Holds = nil
		} else if t.Reserves() && d.Allowed && (o.Allowed || t.Role == Shadow) {
			d.Held.Until = b.State.Holds.Until() // no other hold lives longer
		}
		if r.Dry {
			continue
		}
		b.State.at(&t.Limit, now)
		t.describe(now, &b.State, d, o.Allowed)
		if t.Hold != nil {
			t.Hold.describe(&t.Limit, now, &b.State, d)
		}
		if !o.Allowed {
			w.add(t, now, &b.State, d)
		}
		if t.Limit.Requests == 0 { // the script has not read the bucket
			b.Clock = 0
		}
	}
	if o.RetryAfter = w.retryAfter(); r.Dry {
		r.DecideSeen(now, o)
	}
	return nil
}

// DecideSeen is Decide for a Dry request, from the buckets in o.Seen.
func (r *Request) DecideSeen(now int64, o *Outcome) {
	loaded, seen := make([]Loaded, len(o.Seen)), slices.Clone(o.Seen)
	for i := range seen {
		loaded[i].State = seen[i].State.Clone()
	}
	r.Decide(now, loaded, o)
	o.Seen = seen
}

// ScriptError is why the script could not decide a request.
type ScriptError struct {
	// Take is the index of the take that failed.
	Take int
	// Code is the first word of the message: WRONGTYPE, OOM, READONLY and so on, or UNREADABLE for a foreign value.
	Code string
	// Message is the message of Redis. It may name a client's key.
	Message string
	// Partly means that other takes of the request may have been charged.
	Partly bool
}

func (e *ScriptError) Error() string { return e.Message }

func (r *Request) scriptError(text string, partly bool) error {
	number, message, _ := strings.Cut(strings.Clone(text), " ") // the memory of the line is used again
	take, err := strconv.Atoi(number)
	if err != nil || take < 1 || take > len(r.Takes) {
		return fmt.Errorf("an error for a bucket that was not asked: %q", text)
	}
	code, _, _ := strings.Cut(message, " ")
	return &ScriptError{Take: take - 1, Code: code, Message: message, Partly: partly}
}
