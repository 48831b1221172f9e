package replay

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/tools/compatibility"
	"github.com/extauthz/extauthz/tools/migrate"
)

// httpJudge compares answers of two gateways. It follows each bucket on both sides.
type httpJudge struct {
	gateway migrate.SpringGateway
	buckets map[bucketName]*[2]tank
}

// bucketName names a bucket of the old gateway.
type bucketName struct{ route, key string }

func newHTTPJudge(g migrate.SpringGateway) *httpJudge {
	return &httpJudge{gateway: g, buckets: map[bucketName]*[2]tank{}}
}

// compare returns the differences between two answers to a request.
func (j *httpJudge) compare(number int, r *HTTPRequest, older, newer httpAnswer) (found []Difference) {
	u, err := url.ParseRequestURI(r.Path)
	if err != nil {
		return nil // ReadHTTP refuses such a path
	}
	add := func(what, before, after string, row compatibility.Row) {
		if before != after {
			found = append(found, Difference{
				Request: number, Subject: r.Method + " " + plain(u.Path), What: what, Old: before, New: after, Row: row,
			})
		}
	}
	route := j.gateway.Route(r.Method, u.Path)
	if route == nil || !route.Limited() {
		route = new(migrate.SpringRoute) // nothing is known
	}
	refusal, count := j.refusal(route, &older, &newer), j.count(route, r, u, &older, &newer)
	add("status", strconv.Itoa(older.status), strconv.Itoa(newer.status), cmp.Or(refusal, count))
	if older.has() != newer.has() {
		add("headers", list(&older), list(&newer), j.headers(&older))
		return found
	}
	for i, h := range limitHeaders {
		if numeral(older.limit[i]) == numeral(newer.limit[i]) {
			continue
		}
		var row compatibility.Row
		switch {
		case older.limit[i] == "" && j.gateway.Renamed:
			row = compatibility.SpringRenamed
		case i == remaining || count == compatibility.SpringNoCapacity:
			row = count
		}
		add(h.what, text(older.limit[i]), text(newer.limit[i]), row)
	}
	return found
}

// refusal returns the row that lists different statuses of two refusals, or a refusal because of a missing key.
func (j *httpJudge) refusal(route *migrate.SpringRoute, older, newer *httpAnswer) compatibility.Row {
	noKey := route.Limited() && !older.has() && !j.gateway.NoHeaders && !j.gateway.Renamed
	switch {
	case older.status == route.DeniedStatus && newer.denied():
		return compatibility.SpringStatus
	case !noKey || !newer.refused():
	case route.Empty.Pass:
		return compatibility.SpringEmptyPasses
	case older.status == route.Empty.Status:
		return compatibility.SpringEmptyStatus
	}
	return ""
}

// count returns the row that lists a difference in the tokens of a bucket, "" for none.
func (j *httpJudge) count(route *migrate.SpringRoute, r *HTTPRequest, u *url.URL, older, newer *httpAnswer,
) compatibility.Row {
	denied := older.status == route.DeniedStatus
	steady := j.follow(route, r, u, older, newer)
	switch {
	case !route.Limited(), newer.refused():
	case older.status != newer.status && !denied && !newer.denied(): // not about the limit
	case older.limit[remaining] == "-1":
		return compatibility.SpringDown
	case route.Burst == 0:
		return compatibility.SpringNoCapacity
	case 2*route.Burst < route.Rate && !denied:
		return compatibility.SpringFastRate
	case steady:
		return compatibility.SpringSeconds
	}
	return ""
}

// headers returns the row that lists missing headers of the old gateway.
func (j *httpJudge) headers(older *httpAnswer) compatibility.Row {
	switch {
	case older.has():
	case j.gateway.NoHeaders:
		return compatibility.SpringNoHeaders
	case j.gateway.Renamed:
		return compatibility.SpringRenamed
	}
	return ""
}

// follow notes both decisions. It reports whether each side has decided so far as a bucket that began full does, and in
// which tokens come back as on that side. Then two answers differ only by the moment at which tokens come back.
func (j *httpJudge) follow(route *migrate.SpringRoute, r *HTTPRequest, u *url.URL, older, newer *httpAnswer) bool {
	key, ok := keyOf(route.Key, r, u)
	if !ok || !route.Limited() {
		return false
	}
	name := bucketName{route.ID, key}
	b := j.buckets[name]
	if b == nil {
		b = &[2]tank{newTank(route, eachSecond), newTank(route, continuously)}
		j.buckets[name] = b
	}
	oldFits, newFits := b[0].decide(older, older.status == route.DeniedStatus), b[1].decide(newer, newer.denied())
	return oldFits && newFits
}

// keyOf returns the key of the client. ok is false if the request has none.
func keyOf(k migrate.SpringKey, r *HTTPRequest, u *url.URL) (key string, ok bool) {
	switch k.Source {
	case "address":
		return "", true // all requests come from this process
	case "query":
		return u.Query().Get(k.Name), u.Query().Has(k.Name)
	case "owner":
		k.Name = "x-api-key"
	}
	return r.header(k.Name)
}

// numeral returns a number in the form in which it is compared: Spring can send 1.0 for 1.
func numeral(text string) string {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	return text
}

// text returns the value of a header as it is shown.
func text(value string) string {
	if value == "" {
		return "none"
	}
	return plain(value)
}

// list returns what rate limit headers an answer has.
func list(a *httpAnswer) string {
	var names []string
	for i, h := range limitHeaders {
		if a.limit[i] != "" {
			names = append(names, h.what)
		}
	}
	return text(strings.Join(names, ", "))
}
