package bucket

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Calendar divides time into the days, weeks, months or years of a time zone. A window begins at the first instant at
// which the local date is its first date or a later one, and ends where the next one begins. Weeks begin on Monday.
type Calendar struct {
	name, unit string
	zone       *time.Location
	near       atomic.Pointer[Bounds] // those of the last time that was asked for
}

// Bounds are the beginnings of four windows in a row, in µs since 1970: the end of a window is the next beginning.
type Bounds [4]int64

// CalendarUnits are the units of calendars.
var CalendarUnits = []string{"day", "week", "month", "year"}

// calendars has each calendar under its name, so that equal limits have the same one. Its names are those of zones.
var calendars sync.Map

// CalendarNamed returns the calendar with a name such as month@Europe/Berlin: one of CalendarUnits, and a time zone of
// the IANA or UTC. Equal names have the same calendar. It reads the zone data of the system, else that of time/tzdata.
func CalendarNamed(name string) (*Calendar, error) {
	if c, ok := calendars.Load(name); ok {
		return c.(*Calendar), nil
	}
	unit, zone, _ := strings.Cut(name, "@")
	location, err := time.LoadLocation(zone)
	switch {
	case err != nil:
		return nil, err
	case !slices.Contains(CalendarUnits, unit):
		return nil, fmt.Errorf("the calendar %q has no unit of %s", name, strings.Join(CalendarUnits, ", "))
	case zone == "Local" || zone != path.Clean(zone) || zone[0] < 'A' || zone[0] > 'Z': // posixrules, right/UTC
		return nil, fmt.Errorf("unknown time zone %s", zone)
	}
	c, _ := calendars.LoadOrStore(name, NewCalendar(unit, location))
	return c.(*Calendar), nil
}

// NewCalendar returns the calendar of a unit of CalendarUnits. Limits of rules have those of CalendarNamed.
func NewCalendar(unit string, zone *time.Location) *Calendar {
	return &Calendar{name: unit + "@" + zone.String(), unit: unit, zone: zone}
}

// String returns the name: the unit, an @ and the zone.
func (c *Calendar) String() string { return c.name }

// Zone returns the name of the time zone, "" for a nil calendar.
func (c *Calendar) Zone() string {
	if c == nil {
		return ""
	}
	return c.zone.String()
}

// Bounds returns the beginnings of the window before that of a time, of its own window, and of the next two.
func (c *Calendar) Bounds(x int64) *Bounds {
	b := c.near.Load()
	if b == nil || x < b[1] || x >= b[2] {
		b = c.around(x)
		c.near.Store(b)
	}
	return b
}

// Window returns the beginning and the end of the window that contains a time.
func (c *Calendar) Window(x int64) (begin, end int64) {
	b := c.near.Load()
	if b == nil || x < b[0] || x >= b[3] {
		b = c.Bounds(x)
	}
	i := 0
	for x >= b[i+1] {
		i++
	}
	return b[i], b[i+1]
}

// around works out Bounds. After a step back over midnight, the local date is that before the window. A date that the
// zone leaves out, as Samoa did in 2011, has no window.
func (c *Calendar) around(x int64) *Bounds {
	year, month, day := time.UnixMicro(x).In(c.zone).Date()
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	var begins []int64
	for n := -3; n <= 4; n++ {
		begins = append(begins, c.begin(c.first(date, n)))
	}
	begins = slices.Compact(begins)
	i, exact := slices.BinarySearch(begins, x)
	if !exact {
		i--
	}
	return (*Bounds)(begins[i-1:])
}

// first returns the first date of the window of a date, or of the n-th one after it. Dates are times in UTC.
func (c *Calendar) first(date time.Time, n int) time.Time {
	year, month, day := date.Date()
	switch c.unit {
	case "year":
		year, month, day = year+n, time.January, 1
	case "month":
		month, day = month+time.Month(n), 1
	case "week":
		day += 7*n - int(date.Weekday()+6)%7 // days since Monday
	default:
		day += n
	}
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// begin returns the first instant at which the local date is this date or a later one. time.Date does not: where
// midnight does not exist, it takes an instant before or after, and where it exists twice, either of them.
func (c *Calendar) begin(date time.Time) int64 {
	at := date.Add(-48 * time.Hour) // no zone is that far from UTC
	for {
		local := at.In(c.zone)
		_, offset := local.Zone()
		_, end := local.ZoneBounds()         // of this offset
		if !end.IsZero() && !end.After(at) { // on 31 December of a leap year, ZoneBounds ends before it (Go 1.26)
			end = at.Add(24 * time.Hour)
		}
		first := date.Add(-time.Duration(offset) * time.Second)
		if first.Before(at) {
			first = at
		}
		if end.IsZero() || first.Before(end) {
			return first.UnixMicro()
		}
		at = end
	}
}
