package authz

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// lacking has the remedy for a required key that is absent, by the name of that key, alone or after its object.
var lacking = map[string]string{
	"field":                    wantField,
	"generic_key.value":        "add `value: <the value of the entry>`",
	"header":                   "add `header: <its name>`",
	"header_value_match.value": "add `value: <the value of the entry for requests that match>`",
	"key":                      "add `key: <the key of a descriptor under descriptors>`",
	"metadata.path":            wantMetadata,
	"number":                   "add `number: <the cost>`",
	"parameter":                "add `parameter: <its name in the query>`",
	"request_header":           "add `request_header: x-hold-id`",
}

const (
	wantField    = "want one of `owner`, `plan`, `key_id`, `method`, `label.<name>` or `claim.<name>`"
	wantMetadata = "want the namespace of an Envoy filter and the keys below it, " +
		"such as `[envoy.filters.http.jwt_authn, payload, plan]`"
)

// empty has the remedy for an empty text, by its key, unless lacking has it.
var empty = map[string]string{
	"extension": "write the key that `context_extensions` of the route have",
	"key":       "write the `key` of a descriptor under `descriptors:`",
	"pattern":   "`*` stands for any characters; without `pattern`, every value matches",
}

// emptyNames are texts that have another name in messages than their key.
var emptyNames = map[string]string{"extension": "the name of the context extension", "key": "the key of an entry"}

// objects are the names of objects in messages, by their key and their group of keys. The default is the key.
var objects = map[string]string{
	"actions.action":         "an element of `actions`",
	"credentials.credential": "an element of `credentials`",
	"path.pattern":           "a `path`",
}

// checkTags checks an object, and the objects in it, by the tags of their fields. It reports keys that exclude each
// other, absent keys that are required, numbers out of bounds, empty texts, and wrong names of headers.
func (c *checker) checkTags(path string, object reflect.Value) {
	parent, _, _ := strings.Cut(path[strings.LastIndexByte(path, '.')+1:], "[")
	// The keys of each needed group, and the first that is given.
	groups, first := map[string][]string{}, map[string]string{}
	for _, field := range reflect.VisibleFields(object.Type()) {
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		value, at := object.FieldByIndex(field.Index), strings.TrimPrefix(path+"."+key, ".")
		group, optional, _ := strings.Cut(field.Tag.Get("oneof"), ",")
		if key != "" && group != "" && optional == "" {
			groups[group] = append(groups[group], key)
		}
		if group != "" && !value.IsZero() {
			if first[group] != "" {
				c.Key(at).Fail(suggest.Quoted(key)+" beside "+suggest.Quoted(first[group]), "keep one of them")
			}
			first[group] = cmp.Or(first[group], key, field.Name)
		}
		remedy := cmp.Or(lacking[parent+"."+key], lacking[key], strings.ReplaceAll(field.Tag.Get("remedy"), "'", "`"))
		switch kind := value.Kind(); {
		case key == "": // an inline field, whose fields are visited, or a position
		case value.IsZero(), kind == reflect.Slice && value.Len() == 0:
			if field.Tag.Get("required") != "true" || remedy == "" {
				continue
			}
			message := suggest.Quoted(parent) + " without " + suggest.Quoted(key)
			if strings.Contains(path, ".actions[") {
				message = "this action lacks " + suggest.Quoted(key)
			}
			c.Key(at).Lacking().Fail(message, remedy)
		case key == "header", key == "request_header":
			c.checkHeaderName(at, value.Elem().String())
		case kind == reflect.Pointer && value.Elem().Kind() == reflect.String:
			if hint := cmp.Or(empty[key], lacking[parent+"."+key], lacking[key]); value.Elem().Len() == 0 && hint != "" {
				c.At(at).Fail(cmp.Or(emptyNames[key], suggest.Quoted(key))+" is empty", hint)
			}
		case value.CanInt():
			c.checkBounds(at, key, value.Int(), field.Tag)
		case kind == reflect.Pointer && value.Elem().CanInt():
			c.checkBounds(at, key, value.Elem().Int(), field.Tag)
		case kind == reflect.Pointer:
			c.checkTags(at, value.Elem())
		case kind == reflect.Struct:
			c.checkTags(at, value)
		case kind == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			for i := range value.Len() {
				c.checkTags(ratelimit.Element(at, i), value.Index(i))
			}
		}
	}
	for group, keys := range groups {
		if what := cmp.Or(objects[parent+"."+group], suggest.Quoted(parent)); first[group] == "" {
			c.At(path, below(path, keys...)...).Lacking().Fail(what+" without "+suggest.OneOf(keys), "add one of them")
		}
	}
}

// checkBounds reports a number that is less or more than the tags min and max.
func (c *checker) checkBounds(at, key string, n int64, tag reflect.StructTag) {
	least, _ := strconv.ParseInt(tag.Get("min"), 10, 64)
	most, err := strconv.ParseInt(tag.Get("max"), 10, 64)
	if err == nil && (n < least || n > most) {
		c.At(at).Fail(fmt.Sprintf("%s cannot be `%d`", suggest.Quoted(key), n),
			fmt.Sprintf("want a whole number from %d to %d", least, most))
	}
}
