package authz

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// maxLimits is the largest number of descriptors of a request: one call of the store decides all of them.
const maxLimits = 64

// checkLimits checks limits. example is an action; instead is the remedy for one that shows a secret.
func (c *checker) checkLimits(list string, limits []RateLimit, example, instead string) {
	for i := range limits {
		l, path := &limits[i], ratelimit.Element(list, i)
		if i == maxLimits {
			c.At(path).Fail(fmt.Sprintf("more than %d limits", maxLimits), "each is decided for every request: join some")
			return
		}
		switch {
		case l.Actions == nil:
			c.Key(path+".actions").Lacking().Fail("a limit without `actions`",
				"add "+suggest.Quoted("actions: [{"+example+"}]")+": each action gives one entry of a descriptor")
		case len(l.Actions) == 0:
			c.Key(path+".actions").Fail("`actions` is empty",
				"add one, for example "+suggest.Quoted("- "+example)+": each action gives one entry of a descriptor")
		case l.repeats(limits[:i]):
			c.Key(path+".actions").Warn("an earlier limit has the same `actions`: a request charges its bucket twice",
				"delete one of the limits, and set `hits_addend` if a request costs more than 1")
		}
		for k := range l.Actions {
			action, at := &l.Actions[k], ratelimit.Element(path+".actions", k)
			c.checkAction(at, action)
			c.checkGiven(at, action, instead)
			if list == "refused" && action.Credential != nil {
				c.Key(at+".credential").Fail("a refused request has no `credential`",
					"write an action that needs none, such as "+suggest.Quoted(aboutRefused))
			}
		}
	}
}

// repeats reports whether an earlier limit has the same actions. An action with a mistake may be the zero value.
func (l *RateLimit) repeats(earlier []RateLimit) bool {
	isZero := func(a Action) bool { return reflect.ValueOf(a).IsZero() }
	same := func(e RateLimit) bool { return reflect.DeepEqual(e.Actions, l.Actions) }
	return !slices.ContainsFunc(l.Actions, isZero) && slices.ContainsFunc(earlier, same)
}

func (c *checker) checkAction(path string, a *Action) {
	if a.Metadata != nil && len(a.Metadata.Path) == 1 {
		c.At(path+".metadata.path").Fail("`path` names a namespace only", wantMetadata)
	}
	if a.Credential == nil || text(a.Credential.Field) == "" {
		return
	}
	words, field := []string{"owner", "plan", "key_id", "method"}, *a.Credential.Field
	kind, name, dotted := strings.Cut(field, ".")
	switch {
	case slices.Contains(words, field):
	case dotted && (kind == "label" || kind == "claim") && name != "" && !strings.Contains(name, "<"):
	default:
		c.At(path+".credential.field").Fail(
			"a credential has no field "+suggest.Quoted(field), suggest.DidYouMean(field, words), wantField)
	}
}
