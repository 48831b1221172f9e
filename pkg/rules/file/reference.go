package file

import (
	_ "embed"
	"reflect"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// notes explain the keys in more detail than their tags.
//
//go:embed notes.md
var notes string

// Reference describes all keys of rule files.
func Reference() *strictyaml.Field {
	return strictyaml.Reference(ruleKind(), reflect.TypeFor[root](), notes)
}
