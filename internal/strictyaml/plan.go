package strictyaml

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// plan is how a map is read into a struct.
type plan struct {
	keys   []*key
	byName map[string]*key
	// position is the field for "file:line", nil for none.
	position []int
}

// key is a key of a map and the field that its value goes to.
type key struct {
	name  string
	index []int
	tag   reflect.StructTag
	// typ is the type of the field, without the pointer of one that may be absent.
	typ      reflect.Type
	optional bool
	bare     bool
	// object is the struct that the value, or each element of it, is read into, nil for other values.
	object reflect.Type
	// element says that it is each element.
	element bool
	read    reader
}

// reader reads the value of a key into a field of its type. It returns false if it cannot, which it has reported.
type reader func(d *decoder, in *section, f field, into reflect.Value) bool

func (d *decoder) planOf(t reflect.Type) *plan {
	if p := d.plans[t]; p != nil {
		return p
	}
	p := &plan{byName: map[string]*key{}}
	d.plans[t] = p
	p.add(t, nil)
	return p
}

// add adds the fields of a struct that is the one of the plan, or inline in it.
func (p *plan) add(t reflect.Type, above []int) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("yaml")
		if !tagged || tag == "-" {
			continue
		}
		index := append(above[:len(above):len(above)], i)
		name, option, _ := strings.Cut(tag, ",")
		switch option {
		case "inline":
			p.add(f.Type, index)
			continue
		case "position":
			p.position = index
			continue
		}
		k := &key{name: name, index: index, tag: f.Tag, typ: f.Type, bare: option == "bare"}
		if k.typ.Kind() == reflect.Pointer {
			k.typ, k.optional = k.typ.Elem(), true
		}
		k.choose()
		p.keys = append(p.keys, k)
		p.byName[name] = k
	}
}

func (p *plan) names() []string {
	names := make([]string, len(p.keys))
	for i, k := range p.keys {
		names[i] = k.name
	}
	return names
}

// choose finds the reader of the key's type. A type that there is none for is a mistake in the program.
func (k *key) choose() {
	t := k.typ
	switch {
	case t == reflect.TypeFor[time.Duration]():
		k.read = readDuration
	case t == reflect.TypeFor[time.Time]():
		k.read = readTime
	case isText(t):
		k.read = readText(wordsOf(t), k.tag.Get("secret") == "true")
	case t.Kind() == reflect.String:
		k.read = readString
	case t.Kind() == reflect.Bool:
		k.read = readBool
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		k.read = readInteger(k.bounds())
	case t.Kind() == reflect.Struct:
		k.object = t
		k.read = readStruct
	case t.Kind() == reflect.Slice && (isText(t.Elem()) || t.Elem().Kind() == reflect.String):
		least, _ := k.bound("min")
		k.read = readTexts(least > 0, wordsOf(t.Elem()))
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		k.object, k.element = t.Elem(), true
		k.read = readStructs
	case t == reflect.TypeFor[map[string]string]():
		k.read = readLabels(k)
	case t == reflect.TypeFor[map[string]any]():
		k.read = readFree(k)
	default:
		panic(fmt.Sprintf("strictyaml: cannot read %s into a %s", k.name, t))
	}
}

func isText(t reflect.Type) bool {
	return t != reflect.TypeFor[time.Time]() &&
		reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// wordsOf returns the words that a type takes, nil if it takes others.
func wordsOf(t reflect.Type) []string {
	if w, ok := reflect.New(t).Interface().(interface{ Words() []string }); ok {
		return w.Words()
	}
	return nil
}

// bound returns the number of a tag.
func (k *key) bound(tag string) (n int64, ok bool) {
	text, ok := k.tag.Lookup(tag)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("strictyaml: the tag %s of %s is no whole number: %s", tag, k.name, text))
	}
	return n, true
}

// bounds returns the least and the most that an integer can be: by its tags, else by its type, but at most what
// fits an int64.
func (k *key) bounds() (least, most int64) {
	bits := k.typ.Bits()
	if k.typ.Kind() >= reflect.Uint {
		least, most = 0, math.MaxInt64
		if bits < 64 {
			most = 1<<bits - 1
		}
	} else {
		least, most = -1<<(bits-1), 1<<(bits-1)-1
	}
	if n, ok := k.bound("min"); ok {
		least = n
	}
	if n, ok := k.bound("max"); ok {
		most = n
	}
	return least, most
}
