package keyfile

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// ParseYAML reads API keys in YAML, the former format of key files. The problems are sorted by line. If one of them is
// an error, no keys are returned. No content makes it panic, and no problem shows a key or a hash.
func ParseYAML(file strictyaml.File) ([]apikey.Record, strictyaml.Problems) {
	var root yamlFile
	y := yamlReader{doc: strictyaml.Decode(file, yamlKind(), &root), first: map[string]string{}}
	y.checkKeys(root)
	for i := range root.Keys {
		y.check(fmt.Sprintf("keys[%d]", i), &root.Keys[i])
	}
	problems := y.doc.Problems()
	if problems.HasErrors() {
		return nil, problems
	}
	return root.Keys, problems
}

// yamlKind holds the words of messages about a YAML file of API keys, and its bounds: it can have 100,000 keys.
func yamlKind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun:   "key file",
		Begins: "it begins with `keys:`, and a list of keys follows",
		Empty:  "there is nothing in the file",
		Second: "a key file is one document: move what follows `---` above it",
		Sections: []strictyaml.Section{
			{
				Type: reflect.TypeFor[apikey.Record](), Name: "an API key",
				Example: "- {id: 4Gd0kZ7b, hash: hmac-sha256:..., owner: alice}",
				Belongs: "it belongs directly in an API key, an element of `keys:`",
			},
			{Type: reflect.TypeFor[ratelimit.LimitSpec](), Name: "the limit of an API key"},
			{Type: reflect.TypeFor[apikey.Previous](), Name: "the previous hash of an API key"},
		},
		MaxSize:   32 << 20,
		TooLarge:  "split it: each part can be imported",
		MaxValues: 3_000_000,
		Mask:      apikey.Mask,
		MaskLine:  maskLine,
	}
}

// maskLine hides the hashes and secrets in a line of the file: the value of `hash` may be a key by mistake.
func maskLine(line string) string {
	secrets := regexp.MustCompile(`(?i)(\b(?:hash|key|secret|api_key|password|token)["']?\s*:\s*)([^\s,}#][^,}#]*)`)
	return apikey.Mask(secrets.ReplaceAllStringFunc(line, func(pair string) string {
		parts := secrets.FindStringSubmatch(pair)
		return parts[1] + strings.Repeat("*", utf8.RuneCountInString(parts[2]))
	}))
}

type yamlFile struct {
	Keys []apikey.Record `yaml:"keys"`
}

// yamlReader reports mistakes in the keys of a file.
type yamlReader struct {
	doc *strictyaml.Document
	// first is the first position of each id and each weak key.
	first map[string]string
}

func (y yamlReader) fail(path, message string, hints ...string) {
	y.doc.Add("", suggest.Mistake{Path: path, Message: message, Hints: hints})
}

// checkKeys reports a file without a list of keys.
func (y yamlReader) checkKeys(root yamlFile) {
	if root.Keys != nil {
		return
	}
	for key := range y.doc.Root().Fields() {
		if key == "keys" {
			y.fail("keys", "`keys` is empty", "write `keys: []` for a file without keys")
			return
		}
	}
	y.fail("keys", "a key file without `keys`", yamlKind().Begins)
}

func (y yamlReader) check(path string, r *apikey.Record) {
	if at := path + ".limit.requests_per_unit"; r.Limit != nil && !y.doc.Has(at) { // the field alone could be a 0
		y.fail(at, "a limit without `requests_per_unit`", "add it")
	}
	y.doc.Add(path, r.Check()...)
	y.once(path+".id", "id "+r.ID, "a second key with the id "+suggest.Quoted(r.ID))
	if r.Weak {
		y.once(path+".hash", "weak "+r.Hash.String(), "the same weak key twice")
		y.doc.Add(path, suggest.Mistake{
			Path: "weak", OnKey: true, Also: []string{"id"}, Warning: true,
			Message: "key " + suggest.Quoted(r.ID) + " is weak: for trying only",
			Hints:   []string{"a client that guesses it can use it; `extauthz keys create` makes a strong one"},
		})
	}
}

// once reports a value that an earlier key has.
func (y yamlReader) once(path, value, message string) {
	if !y.doc.Has(path) {
		return
	}
	if first, known := y.first[value]; known {
		y.fail(path, message, "the first is at "+first+": delete one of them")
		return
	}
	y.first[value] = y.doc.Position(path)
}
