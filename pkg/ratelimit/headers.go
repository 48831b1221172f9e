package ratelimit

import (
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/internal/suggest"
)

// Headers are own headers of answers: templates by name, which can have {used}, {limit}, {remaining}, {reset},
// {retry_after} and {name}. An empty map, `off` in a rule file, hides a limit from clients. nil is unset.
type Headers map[string]string

// Off reports whether the limit is hidden.
func (h Headers) Off() bool { return h != nil && len(h) == 0 }

// String returns the names, or off.
func (h Headers) String() string {
	if h.Off() {
		return "off"
	}
	return strings.Join(slices.Sorted(maps.Keys(h)), "+")
}

// Words lists the texts that UnmarshalText accepts.
func (Headers) Words() []string { return []string{"off"} }

// UnmarshalText accepts off, and the other words of YAML for no.
func (h *Headers) UnmarshalText(text []byte) error {
	if word := strings.ToLower(string(text)); word != "off" && word != "no" && word != "n" && word != "false" {
		return errors.New("want `off`, or a map of names and templates, such as `{X-Quota: \"{used}/{limit}\"}`")
	}
	*h = Headers{}
	return nil
}

// OwnHeader is a header of Headers. It is sent unless Ends is set and the answer is no denial that ends.
type OwnHeader struct {
	Name, Template string // Name is in lower case.
	// Ends is set if the template has {retry_after}, which only a denial that ends has.
	Ends bool
}

// Compile returns the headers, sorted by name.
func (h Headers) Compile() (list []OwnHeader) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		list = append(list, OwnHeader{strings.ToLower(name), h[name], strings.Contains(h[name], "{retry_after}")})
	}
	return list
}

// Check reports names that no header of an answer may have, and templates that do not make a value. taken are the names
// of other headers of the same answer, in lower case.
func (h Headers) Check(m *Mistakes, at string, taken []string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		path, lower, template := at+"."+name, strings.ToLower(name), h[name]
		why := httpheader.Misnamed(name)
		switch {
		case why != "":
			m.Key(path).Fail(suggest.Quoted(name)+" "+why, "choose letters, digits and `-`, such as `X-Quota-Remaining`")
		case slices.Contains(taken, lower):
			m.Key(path).Fail("an answer has a header "+suggest.Quoted(name)+" already",
				"choose another name, or change RESPONSE_HEADERS or RESPONSE_HEADER_NAMES")
		}
		taken = append(taken[:len(taken):len(taken)], lower)
		unprintable := func(c rune) bool { return c < ' ' || c > '~' }
		if template == "" || strings.TrimSpace(template) != template || strings.ContainsFunc(template, unprintable) {
			m.At(path).Fail("the template of "+suggest.Quoted(name)+" is not printable ASCII without spaces around it",
				"write a text such as `{used}/{limit}`")
		}
		checkPlaceholders(m.At(path), template, []string{"used", "limit", "remaining", "reset", "retry_after", "name"},
			"want {used}, {limit}, {remaining}, {reset}, {retry_after} or {name}")
	}
}

var placeholder = regexp.MustCompile(`\{(\w*)\}`)

// checkPlaceholders reports the placeholders of a template that are not known.
func checkPlaceholders(at Spot, template string, known []string, want string) {
	for _, found := range placeholder.FindAllStringSubmatch(template, -1) {
		if slices.Contains(known, found[1]) {
			continue
		}
		hints := []string{want}
		if meant := suggest.Closest(found[1], known); meant != "" {
			hints = append([]string{"did you mean `{" + meant + "}`?"}, hints...)
		}
		at.Fail("there is nothing to put in place of "+suggest.Quoted(found[0]), hints...)
	}
}
