// Package strictyaml reads YAML files into structs and reports every mistake at once, each with its position and a fix.
// It finds unknown, misspelt, misplaced and repeated keys, values of another type, and YAML that readers interpret
// differently. [Decode] reads a file into a struct, [Read] into a [Value]. Both return a [Document] with the problems.
//
// The tags of a struct's fields describe the keys of a file:
//
//	Unit     Unit           `yaml:"unit" doc:"The unit of the window." example:"minute"`
//	Requests int64          `yaml:"requests_per_unit" min:"0" max:"4294967295"`
//	Hosts    []string       `yaml:"hosts" min:"1"`      // at least one element
//	Path     *Path          `yaml:"path,bare"`          // `path:` means the same as `path: {}`
//	Source                  `yaml:",inline"`            // its keys are keys of this map
//	Position string         `yaml:",position"`          // set to "file:line"
//
// [Dump] writes a struct as one line of text. doc, default, example and oneof are for [Schema] and [Reference].
// required:"true" is for these, too, and [Decode] reports a map that lacks such a key. A key without a value means the
// same as no key. former:"name" is another name of the key, which older files have. also:"word" is a word that the type
// accepts and that only this key lists. Fields can be structs, strings, bools, integers, time.Duration (at least 0),
// map[string]any, maps of texts, integers or structs, and types with an UnmarshalText method. A pointer is for a value
// that may be absent. A slice has structs, strings or types with an UnmarshalText method. A type with a method Words()
// []string takes one of these words, and messages list them. A type with a method UnmarshalList([]string) takes a list
// of texts beside its text or its map.
package strictyaml
