package rules_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/rules"
)

// secret is the content of the maps with any keys, of which only the keys are shown.
const secret = "quizzebra"

// fill sets a value to one that is no default.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		v.SetInt(int64(time.Minute))
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if name, _ := strictyaml.Key(f); name != "" {
				fill(v.FieldByIndex(f.Index))
			}
		}
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.ValueOf(secret)
		if v.Type().Elem().Kind() == reflect.Int64 {
			value = reflect.ValueOf(int64(2))
		}
		v.SetMapIndex(reflect.ValueOf("x"), value)
	case v.Kind() == reflect.String:
		v.SetString("x")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Type() == reflect.TypeFor[int64]():
		v.SetInt(2)
	case v.CanInt():
		v.SetInt(1)
	default:
		v.SetUint(1)
	}
}

// TestDumpShowsEachKey sets each key of a rule file, one after the other.
func TestDumpShowsEachKey(t *testing.T) {
	dump := func(n ratelimit.Node, p authz.Policy) string {
		live := rules.NewLive(rules.Options{})
		live.Activate(rules.Set{
			Domains:  []ratelimit.Domain{{Name: "d", Descriptors: []ratelimit.Node{n}}},
			Policies: map[string]*authz.Policy{"d": &p},
		}, nil)
		return rules.Dump(live.Active())
	}
	limit := ratelimit.Limit{Unit: descriptors.Minute, Requests: new(int64(100)), Algorithm: bucket.LeakyBucket}
	node := ratelimit.Node{Key: "k", RateLimit: &limit}
	var policy authz.Policy
	without := dump(node, policy)
	// These keys make up the name of a rule, or are the places of limits.
	unnamed := []string{"key", "value", "limits", "descriptors"}
	// each sets each key of a struct, which must be a copy.
	each := func(object reflect.Value, dump func() string) {
		for _, f := range reflect.VisibleFields(object.Type()) {
			name, _ := strictyaml.Key(f)
			v := object.FieldByIndex(f.Index)
			before := reflect.ValueOf(v.Interface())
			if name == "" || name == "rate_limit" || name == "descriptors" {
				continue
			}
			fill(v)
			got := dump()
			shown := strings.Contains(got, name+"=") || strings.Contains(got, name+": ") || slices.Contains(unnamed, name)
			if got == without || !shown || strings.Contains(got, secret) {
				t.Errorf("%s.%s is not shown, or shows its data:\n%s", object.Type(), name, got)
			}
			v.Set(before)
		}
	}
	each(reflect.ValueOf(&node).Elem(), func() string { return dump(node, policy) })
	each(reflect.ValueOf(&limit).Elem(), func() string { return dump(node, policy) })
	each(reflect.ValueOf(&policy).Elem(), func() string { return dump(node, policy) })
}

// TestDumpHidesKeys: an API key that is in a rule file by mistake is not shown.
func TestDumpHidesKeys(t *testing.T) {
	live := rules.NewLive(rules.Options{})
	live.Activate(rules.Set{Domains: []ratelimit.Domain{{Name: "d", Descriptors: []ratelimit.Node{{
		Key: "api_key", Value: "ea_4Gd0kZ7b_Jm2xN8vQp4RtYw6ZaBcDeFgHiKlMnOpQ1a2b3c", RateLimit: new(ratelimit.Limit),
	}}}}}, nil)
	if text := rules.Dump(live.Active()); !strings.HasPrefix(text, "d.api_key_ea_4Gd0kZ7b_***") {
		t.Errorf("got %s", text)
	}
}
