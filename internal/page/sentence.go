package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Sentence returns a limit of a rule in words.
func Sentence(r *ratelimit.Rule, l *ratelimit.RuleLimit) string {
	if r.Unlimited {
		return "No limit " + whom(r.Path()) + "."
	}
	window := "per " + l.Unit.String()
	if l.UnitMultiplier > 1 {
		window = "per " + suggest.Counted(int(l.UnitMultiplier), l.Unit.String())
	}
	if l.Calendar != nil {
		window += " in " + l.Calendar.Zone()
	}
	if l.Algorithm.Windowless() {
		window = "at once"
	}
	text := "No requests "
	if l.Requests > 0 {
		text = fmt.Sprintf("At most %s %s ", suggest.Counted(int(l.Requests), "request"), window)
	}
	parts := suggest.Parts{text, whom(r.Path())}
	parts.Add(l.Algorithm.HasBurst() && l.Burst != l.Requests, ", up to %d at once", l.Burst)
	parts.Add(l.MaxDelay > 0, ", held for up to %s if early", time.Duration(l.MaxDelay)*time.Microsecond)
	parts.Add(true, " (%s).", strings.ReplaceAll(l.Algorithm.String(), "_", " "))
	if l.Override != nil {
		parts.Add(true, " A request or a credential can bring its own limit, up to %d %s.", l.Override.Max, window)
	}
	parts.Add(r.Node.Quota, " Quota: it denies only if all quotas of a request do.")
	parts.Add(l.Shadow, " In shadow: it never denies.")
	if e := l.Enforce; e != nil {
		parts.Add(true, " Enforced for %s percent by %s, else in shadow.", e.Percent, e.By)
	}
	return strings.Join(parts, "")
}

// whom returns which requests a rule counts, and which share a bucket: "for each owner where plan is gold".
func whom(path []*ratelimit.Node) string {
	var each, where []string
	for _, n := range path {
		key, its := n.Key, n.Key
		if strings.Contains(n.Key, "*") {
			key, its = "key like "+n.Key+" with each value", "its value"
		}
		fixed := n.Value != "" && !strings.Contains(n.Value, "*")
		if fixed && key != n.Key {
			each = append(each, "key like "+n.Key)
		}
		switch {
		case n.Network != "" && n.ShareThreshold:
			where = append(where, its+" is in "+n.Network)
		case n.Network != "":
			each = append(each, key+" in "+n.Network)
		case n.Value == "":
			each = append(each, key)
		case fixed:
			where = append(where, its+" is "+n.Value)
		case n.ShareThreshold:
			where = append(where, its+" is like "+n.Value)
		default:
			each = append(each, key+" like "+n.Value)
		}
	}
	text := "for all requests"
	if each != nil {
		text = "for each " + strings.Join(each, " and ")
	}
	if where != nil {
		text += " where " + strings.Join(where, " and ")
	}
	return text
}
