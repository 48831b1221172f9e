package settings

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// Setting describes a setting.
type Setting struct {
	Name    string `json:"name"`
	Default string `json:"default,omitempty"`
	Example string `json:"example"`
	Meaning string `json:"meaning"`
	// Group is the title of this setting and those around it.
	Group string `json:"group"`
	// File is true if the value can also come from the file that NAME_FILE names.
	File bool `json:"file,omitempty"`

	tag   reflect.StructTag
	index []int // of the field of Settings
}

// List describes all settings, in the order in which they are documented. The caller must not change it.
var List = sync.OnceValue(func() []Setting { return listFields(reflect.TypeFor[Settings](), "", nil, "") })

// listFields returns the settings in a struct, with the prefix of their names and the title above the first of them.
func listFields(group reflect.Type, prefix string, index []int, title string) (list []Setting) {
	for f := range group.Fields() {
		at, name := append(index[:len(index):len(index)], f.Index[0]), f.Tag.Get("envconfig")
		switch {
		case name != "":
			s := Setting{
				Name: prefix + name, Default: f.Tag.Get("default"), Example: f.Tag.Get("example"),
				Meaning: f.Tag.Get("desc"), Group: cmp.Or(f.Tag.Get("group"), title), File: f.Tag.Get("secret") != "",
				tag: f.Tag, index: at,
			}
			if prefix == "REDIS_PERSECOND_" {
				s.Meaning, s.Group = "as REDIS_"+name+", for the second Redis", title
			}
			title = s.Group
			list = append(list, s)
		case f.Type.Kind() == reflect.Struct:
			list = append(list, listFields(f.Type, f.Tag.Get("prefix"), at, title)...)
			title = list[len(list)-1].Group
		}
	}
	return list
}

// Names returns the names of all variables that the service reads, with NAME_FILE for secrets.
func Names() (names []string) {
	for _, s := range List() {
		names = append(names, s.Name)
		if s.File {
			names = append(names, s.Name+"_FILE")
		}
	}
	return names
}

// InEffect returns the value of a setting in words, "" for none. It does not show secrets.
func (s *Settings) InEffect(setting Setting) string {
	value, e := reflect.ValueOf(s).Elem().FieldByIndex(setting.index), currentEnvironment()
	given := reflect.New(value.Type()).Elem()
	mistake := setting.read(e, given)
	switch {
	case setting.File && value.IsZero():
		return ""
	case setting.File:
		return "(set)"
	case mistake == nil && reflect.DeepEqual(value.Interface(), given.Interface()):
		return cmp.Or(e[setting.Name], setting.Default)
	}
	return cmp.Or(strings.Trim(fmt.Sprint(value.Interface()), "[]"), "off") // resolveDefaults has changed it
}
