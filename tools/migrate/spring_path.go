package migrate

import (
	"regexp"
	"strings"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
)

// SpringPath is the predicate Path of a route.
type SpringPath struct {
	// Example is a path that the route takes, in which * stands for any word.
	Example string

	// form and pattern are a PathPattern of the policy: `exact`, `prefix` or `template`, and its text.
	form, pattern string
	// text is the value of the entry that the action `path` makes.
	text string
	// expression matches the decoded paths of the route, as paths does.
	expression string
	paths      *regexp.Regexp
}

// predicates reads the predicates of a route: one path, and methods. Without a limit, their mistakes are warnings.
func (s *spring) predicates(r *SpringRoute, list *strictyaml.Value, limited bool) bool {
	fail := func(at *strictyaml.Value, message, hint string) bool {
		if limited {
			s.Fail(at, message, hint)
		} else {
			s.Warn(at, "left out, because it has no limit: "+message, hint)
		}
		return false
	}
	for _, v := range list.Items() {
		name, arguments := predicate(v)
		switch name {
		case "Path":
			if len(arguments) != 1 || r.form != "" {
				return fail(v, "a route with several paths shares one bucket among them",
					"make it one route for each path, or write the limit by hand")
			}
			path, ok := parsePath(arguments[0])
			if !ok {
				return fail(v, "the path "+suggest.Quoted(arguments[0])+" has no equivalent",
					"paths here are exact, /below/** or /with/{one}/segment; write another one by hand")
			}
			r.SpringPath = path
		case "Method":
			for _, method := range arguments {
				if !methodName.MatchString(method) {
					return fail(v, suggest.Quoted(method)+" is no HTTP method", "want a method such as GET")
				}
				r.Methods = append(r.Methods, strings.ToUpper(method))
			}
		default:
			return fail(v, "the predicate "+suggest.Quoted(name)+
				" is not converted: the path and the method choose the limit here",
				"convert the route without it, and write `hosts` or another action by hand")
		}
	}
	if r.form == "" {
		return fail(r.at, "a route without the predicate `Path`", "the path chooses the limit here: add `Path=/**`")
	}
	return true
}

// predicate returns the name and the arguments of a predicate in its short or its long form.
func predicate(v *strictyaml.Value) (name string, arguments []string) {
	add := func(text string) {
		if text = strings.TrimSpace(text); text != "" && text != "true" && text != "false" { // the option matchTrailingSlash
			arguments = append(arguments, text)
		}
	}
	if v.IsText() {
		name, list, _ := strings.Cut(v.Text(), "=")
		for text := range strings.SplitSeq(list, ",") {
			add(text)
		}
		return strings.TrimSpace(name), arguments
	}
	for key, value := range find(v, "args").Fields() {
		if strings.EqualFold(key, "matchTrailingSlash") {
			continue
		}
		if !value.IsList() {
			for text := range strings.SplitSeq(value.Text(), ",") {
				add(text)
			}
		}
		for _, item := range value.Items() {
			add(item.Text())
		}
	}
	return find(v, "name").Text(), arguments
}

var (
	plainSegment    = regexp.MustCompile(`^[^*?{}\\]*$`)
	methodName      = regexp.MustCompile(`^[A-Za-z]{1,20}$`)
	variableSegment = regexp.MustCompile(`^\{[A-Za-z_][A-Za-z0-9_]*\}$`)
	variable        = regexp.MustCompile(`\{[^/]*\}`)
	quotedVariable  = regexp.MustCompile(`\\\{[^/]*\\\}`) // as regexp.QuoteMeta makes it
)

// parsePath reads a path pattern of Spring.
func parsePath(text string) (SpringPath, bool) {
	if !strings.HasPrefix(text, "/") {
		text = "/" + text
	}
	segments := strings.Split(text, "/")[1:]
	below := false
	if last := segments[len(segments)-1]; last == "**" || strings.HasPrefix(last, "{*") && strings.HasSuffix(last, "}") {
		below, segments = true, segments[:len(segments)-1]
	}
	variables := false
	for i, segment := range segments {
		switch {
		case segment == "*":
			segments[i], variables = "{any}", true
		case variableSegment.MatchString(segment):
			variables = true
		case !plainSegment.MatchString(segment):
			return SpringPath{}, false
		}
	}
	pattern := "/" + strings.Join(segments, "/")
	p := SpringPath{
		Example: pattern, form: "exact", pattern: pattern, text: pattern, expression: regexp.QuoteMeta(pattern),
	}
	switch {
	case below && variables:
		return SpringPath{}, false
	case below:
		p.form, p.text = "prefix", strings.TrimSuffix(pattern, "/")+"/*"
		p.Example, p.expression = p.text, strings.TrimSuffix(p.expression, "/")+"(/.*)?"
	case variables:
		p.form, p.expression = "template", quotedVariable.ReplaceAllString(p.expression, "[^/]+")
		p.Example = variable.ReplaceAllString(pattern, "*")
	}
	p.paths = regexp.MustCompile("^" + p.expression + "$")
	return p, true
}
