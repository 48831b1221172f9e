package strictyaml

import (
	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/internal/suggest"
)

// mapping reads the fields of a mapping from its keys and values in turn. A merge key (<<) adds the fields of other
// mappings. The mapping's own fields replace them.
func (t *treeReader) mapping(v *Value, content []*yaml.Node) {
	at := map[string]int{} // indexes into v.fields
	merged := false
	v.fields = make([]field, 0, len(content)/2)
	for i := 0; i+1 < len(content); i += 2 {
		key := t.read(content[i])
		f := field{key: key.text, at: key.at, value: t.read(content[i+1])}
		if f.value.shape == null && !f.value.unread {
			f.value.at = f.at
		}
		known, taken := at[f.key]
		switch {
		case key.unread:
		case key.shape == mapping, key.shape == list:
			t.fail(key.at, "a key is a word, not "+key.shape.String())
		case content[i].Tag == "!!merge" && merged:
			t.fail(f.at, "a second `<<` in one map", "write `<<: [*a, *b]`: the first of them wins")
		case content[i].Tag == "!!merge":
			merged = true
			t.merge(v, at, f)
		case !taken:
			at[f.key] = len(v.fields)
			v.fields = append(v.fields, f)
		case v.fields[known].merged:
			f.hidden = append(v.fields[known].hidden, v.fields[known].value)
			v.fields[known] = f
		default:
			t.fail(f.at, "duplicate key "+suggest.Quoted(f.key)+" in one map",
				"the first is at "+t.position(v.fields[known].at)+": delete one of them")
		}
	}
}

// merge adds the fields of a merge key. If the mapping has already set one of them, that is an error: YAML and
// envoyproxy/ratelimit disagree on which value applies.
func (t *treeReader) merge(v *Value, at map[string]int, f field) {
	sources := []*Value{f.value}
	if f.value.shape == list {
		sources = f.value.items
	}
	ownFields := len(v.fields)
	for _, source := range sources {
		if source.shape != mapping {
			if !source.unread {
				t.fail(f.at, "`<<` takes a map, not "+source.shape.String(), "write `<<: *name`, where `&name` marks a map")
			}
			continue
		}
		for _, m := range source.fields {
			i, known := at[m.key]
			switch {
			case !known:
				at[m.key] = len(v.fields)
				m.merged, m.hidden = true, nil
				v.fields = append(v.fields, m)
			case i < ownFields:
				t.fail(f.at, "`<<` stands after "+suggest.Quoted(m.key)+", which it also sets",
					"YAML takes "+suggest.Quoted(m.key)+" from here, envoyproxy/ratelimit from `<<`: put `<<` first")
			case m.value.shape == mapping:
				v.fields[i].hidden = append(v.fields[i].hidden, m.value)
			}
		}
	}
}
