package file

import (
	_ "embed"
	"reflect"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// notes explain more than the tags do.
//
//go:embed notes.md
var notes string

// Reference describes all keys of rule files.
func Reference() *strictyaml.Field {
	return strictyaml.Reference(ruleKind(), reflect.TypeFor[root](), notes)
}
