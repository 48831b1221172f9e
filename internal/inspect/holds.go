package inspect

import (
	"fmt"
	"math"
	"slices"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Holds are the live holds of a bucket. Their units are not in Bucket.Used.
type Holds struct {
	// Number is how many there are, of at most Most, and Units what they hold together. Until is when all have expired, in
	// seconds; 0 if it is not known.
	Number int64   `json:"number"`
	Most   int64   `json:"most"`
	Units  int64   `json:"units"`
	Until  float64 `json:"until,omitempty"`
	// List has the holds by id, the first to expire first. Without Redis, a replica knows only its own by id. A query of a
	// rule has no list.
	List []Hold `json:"list,omitempty"`
}

// Hold is a live hold. ID is its name in the log of decisions. It expires in so many seconds.
type Hold struct {
	ID      string  `json:"id"`
	Units   uint64  `json:"units"`
	Expires float64 `json:"expires"`
}

// holdsListed is how many holds of a bucket a text lists.
const holdsListed = 20

// holdsOf returns the live holds of a bucket at a time, nil for a limit without holds.
func holdsOf(terms *bucket.Hold, live *bucket.Holds, at int64) *Holds {
	if terms == nil {
		return nil
	}
	h := &Holds{Number: live.Number(), Most: terms.Most, Units: live.Units()}
	h.Until = seconds(max(0, live.Until()-at))
	for _, c := range live.Live() {
		if c.ID != (bucket.HoldID{}) { // otherwise it stands for units whose outcome is not known
			h.List = append(h.List, Hold{c.ID.String(), c.Cost, seconds(c.Expires - at)})
		}
	}
	return h
}

// Summarize removes the list and the time.
func (h *Holds) Summarize() {
	if h != nil {
		h.List, h.Until = nil, 0
	}
}

// Units returns the units in use and those of holds.
func (b *Bucket) Units() int64 {
	if b.Holds == nil {
		return b.Used
	}
	return b.Used + b.Holds.Units
}

// usage returns what is used and held as a text.
func (b *Bucket) usage() string {
	text := fmt.Sprintf("%d of %d used", b.Used, b.Capacity)
	if h := b.Holds; h != nil && h.Number > 0 {
		text += fmt.Sprintf(", %d held in %s", h.Units, suggest.Counted(int(h.Number), "hold"))
	}
	return text
}

// rows returns the holds as rows of a table: id, units and expiry.
func (h *Holds) rows() (rows [][]string) {
	if h == nil {
		return nil
	}
	number, units := h.Number, h.Units
	for _, c := range h.List[:min(len(h.List), holdsListed)] {
		rows = append(rows, []string{"  hold " + c.ID, fmt.Sprintf("%d held", c.Units), "expires in " + whole(c.Expires)})
		number, units = number-1, units-int64(c.Units)
	}
	if number > 0 && h.Until > 0 {
		rows = append(rows, []string{
			fmt.Sprintf("  and %d more", number), fmt.Sprintf("%d held", units), "the last expires in " + whole(h.Until),
		})
	}
	return rows
}

func whole(seconds float64) string { return fmt.Sprintf("%.0f s", math.Ceil(seconds)) }

// AskedHold is what a request asks of the holds of a bucket: reserve or settle.
type AskedHold struct {
	Action string `json:"action"`
	ID     string `json:"id"`
	// Ends is the units of the hold that a settlement would end. It is nil for a reserve, and if the bucket has no hold of
	// this id.
	Ends *uint64 `json:"ends,omitempty"`
}

// askHold adds what a limit was asked of its holds.
func (b *Asked) askHold(a *ratelimit.Applied) {
	switch {
	case a.Settles():
		c := &a.Hold.Settles[0]
		b.Hold = &AskedHold{Action: "settle", ID: c.ID.String()}
		live := a.Bucket.Holds.Live()
		if i := slices.IndexFunc(live, func(l bucket.HoldCost) bool { return l.ID == c.ID }); i >= 0 {
			b.Hold.Ends = &live[i].Cost
		}
		if b.Charge = 0; !a.Limit.Algorithm.Windowless() {
			b.Charge = int64(min(a.Cost, uint64(2*b.Capacity)))
		}
	case a.Hold != nil:
		b.Hold = &AskedHold{Action: "reserve", ID: a.Hold.Reserves[0].ID.String()}
	}
	switch h := b.Holds; {
	case h == nil || b.Fits || b.RetryAfter < 0:
	case b.Hold != nil && b.Cost > 0 && h.Number >= h.Most:
		b.DeniedBy = "most"
	case b.RetryAfter <= 1 && b.Used+int64(max(b.Cost, 1)) <= b.Capacity && b.Units()+int64(max(b.Cost, 1)) > b.Capacity:
		b.DeniedBy = "holds"
	}
}

// asks returns what the request asks for, and the verdict of this limit, as a text.
func (b *Asked) asks() string {
	verdict := "denied, fits in " + whole(b.RetryAfter)
	switch {
	case b.Fits:
		verdict = "fits"
	case b.RetryAfter < 0:
		verdict = "never fits"
	case b.DeniedBy == "holds":
		verdict = "denied by the holds, retry in " + whole(b.RetryAfter) + " (when holds are settled is not known)"
	case b.DeniedBy == "most":
		verdict = fmt.Sprintf("denied by `most: %d`, retry in %s (when holds are settled is not known)", b.Holds.Most,
			whole(b.RetryAfter))
	}
	switch h := b.Hold; {
	case h == nil:
		return fmt.Sprintf("costs %d: %s", b.Cost, verdict)
	case h.Action == "reserve":
		return fmt.Sprintf("reserves %d under %s: %s", b.Cost, h.ID, verdict)
	case h.Ends == nil:
		return fmt.Sprintf("settles %d under %s: finds no hold", b.Cost, h.ID)
	default:
		return fmt.Sprintf("settles %d under %s: ends a hold of %d", b.Cost, h.ID, *h.Ends)
	}
}

// noHold returns why the last entry of a descriptor asks for no hold, although a limit applies: "" if it does, or if it
// has another key.
func noHold(d *descriptors.Descriptor, asked []Asked) string {
	last := len(d.Entries) - 1
	if last < 0 || len(asked) == 0 || asked[0].Hold != nil || !descriptors.OfHold(d.Entries[last].Key) {
		return ""
	}
	key := suggest.Quoted(d.Entries[last].Key)
	if d.Limit != nil {
		return key + " has no effect, because the request brings its own limit"
	}
	return key + " is matched like any other entry, because the rule has no `hold`"
}
