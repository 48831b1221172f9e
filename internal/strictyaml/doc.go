// Package strictyaml reads YAML files into structs and reports every mistake at once, each with its position and a
// way to fix it: keys that are unknown, misspelt, misplaced or repeated, values of another type, and what readers
// of YAML do not agree on.
//
// The tags of a struct's fields say what a file can have:
//
//	Unit     Unit           `yaml:"unit" doc:"The unit of the window." example:"minute"`
//	Requests int64          `yaml:"requests_per_unit" min:"0" max:"4294967295"`
//	Hosts    []string       `yaml:"hosts" min:"1"`      // at least one element
//	Path     *Path          `yaml:"path,bare"`          // `path:` is as good as `path: {}`
//	Hash     Hash           `yaml:"hash" secret:"true"` // no message repeats the value
//	Source                  `yaml:",inline"`            // its keys are keys of this map
//	Position string         `yaml:",position"`          // set to "file:line"
//
// doc, default, example, required and oneof are for the JSON Schema: see Schema. A key without a value is as good
// as no key. Fields can be structs, pointers to what may be absent, slices of structs, of strings or of types with
// an UnmarshalText method, map[string]string, map[string]any, strings, bools, integers, time.Duration (at least 0),
// time.Time (a time of RFC 3339 or a date, from 1970 on) and types with an UnmarshalText method. If such a type
// also has a method Words() []string, it takes one of these words, and a mistake names them.
package strictyaml
