package strictyaml

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Key returns the key of a field, and the option after it. The key is "" for a field that is none.
func Key(f reflect.StructField) (name, option string) {
	name, option, _ = strings.Cut(f.Tag.Get("yaml"), ",")
	return strings.TrimPrefix(name, "-"), option
}

// Given returns the keys of a tagged struct that have a value, with their fields, in the order of the fields.
func Given(object reflect.Value) iter.Seq2[string, reflect.StructField] {
	return func(yield func(string, reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(object.Type()) { // including those of inline structs
			if name, _ := Key(f); name != "" && !object.FieldByIndex(f.Index).IsZero() && !yield(name, f) {
				return
			}
		}
	}
}

// Dump returns the keys of a tagged struct that have a value, and their values, in one line: "burst=5, name=a". Of a
// map with any keys, it shows only the keys, because such a map is data for others, which may be secret.
func Dump(object any) string { return strings.Join(dumpKeys(reflect.ValueOf(object)), ", ") }

func dumpKeys(object reflect.Value) (list []string) {
	for name, f := range Given(object) {
		list = append(list, name+"="+dumpValue(object.FieldByIndex(f.Index)))
	}
	return list
}

func dumpValue(v reflect.Value) string {
	if _, named := v.Interface().(fmt.Stringer); !named {
		switch v.Kind() {
		case reflect.Pointer:
			return dumpValue(v.Elem())
		case reflect.Struct:
			return "{" + strings.Join(dumpKeys(v), ", ") + "}"
		case reflect.Slice:
			var list []string
			for i := range v.Len() {
				list = append(list, dumpValue(v.Index(i)))
			}
			return strings.Join(list, "+")
		case reflect.Map:
			return strings.Join(slices.Sorted(maps.Keys(v.Interface().(map[string]any))), "+")
		}
	}
	return fmt.Sprint(v)
}
