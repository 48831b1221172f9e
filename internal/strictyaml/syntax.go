package strictyaml

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/internal/suggest"
)

// parseYAML returns the root of the one YAML document of a file, nil if there is none or the file is not YAML. The
// parser is of the family that envoyproxy/ratelimit uses (libyaml), so that both read the same from every file.
func parseYAML(r *report) *yaml.Node {
	loader, err := yaml.NewLoader(strings.NewReader(r.text))
	if err != nil {
		failSyntax(r, err)
		return nil
	}
	var root *yaml.Node
	for {
		var document yaml.Node
		err := loader.Load(&document)
		if errors.Is(err, io.EOF) {
			return root
		}
		if err != nil {
			failSyntax(r, err)
			return nil
		}
		switch {
		case len(document.Content) == 0, document.Content[0].Kind == yaml.ScalarNode && document.Content[0].Value == "":
			continue
		case root != nil:
			r.fail(place{line: document.Line, column: document.Column}, "a second YAML document", r.kind.Second)
			return root
		}
		root = document.Content[0]
	}
}

// failSyntax reports that a file is not YAML, in words that say how to fix it.
func failSyntax(r *report, err error) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		r.fail(place{}, "not YAML: "+err.Error())
		return
	}
	at := place{line: e.Mark.Line, column: e.Mark.Column}
	opened := place{line: e.ContextMark.Line, column: e.ContextMark.Column}
	in := func(context string) bool { return strings.Contains(e.ContextMsg, context) }
	says := func(message string) bool { return strings.Contains(e.Message, message) }
	switch {
	case says("unknown anchor"):
		name := strings.TrimPrefix(r.wordAt(at), "*")
		at.node = &yaml.Node{Kind: yaml.AliasNode, Value: name}
		r.fail(at, "no anchor "+suggest.Quoted("&"+name)+" above the alias "+suggest.Quoted("*"+name),
			"a text that begins with `*` needs quotes: "+suggest.Quoted(`"*`+name+`"`))
	case in("scanning an alias"), in("scanning an anchor"):
		word := r.wordAt(opened)
		r.fail(opened, "not YAML: a name is missing after "+suggest.Quoted(word[:min(1, len(word))]),
			"a text that begins with `*` or `&` needs quotes: "+suggest.Quoted(`"`+word+`"`))
	case in("quoted scalar") && (says("end of stream") || says("document indicator")):
		r.fail(opened, "not YAML: this quote is never closed",
			"close it where the text ends; inside single quotes write `''` for a quote")
	case in("quoted scalar") && says("unknown escape"):
		r.fail(at, "not YAML: "+e.Message,
			"between double quotes `\\` begins an escape: write `\\\\`, or use single quotes")
	case in("a flow") && at.line != opened.line && opened.line > 0:
		r.fail(opened, "not YAML: this bracket is not closed", fmt.Sprintf("%s until line %d", e.Message, at.line))
	case in("a flow"):
		r.fail(at, "not YAML: "+e.Message, "a comma or a closing bracket is missing")
	case says("cannot start any token") && strings.HasPrefix(r.textAt(at), "\t"):
		r.fail(at, "not YAML: indented with a tab", "indent with spaces: YAML takes no tabs there")
	case says("cannot start any token"):
		word := r.wordAt(at)
		r.fail(at, "not YAML: no text begins with "+suggest.Quoted(word[:min(1, len(word))]),
			"put the text in quotes: "+suggest.Quoted(`"`+word+`"`))
	case says("mapping values are not allowed"):
		r.fail(at, "not YAML: a `:` where no key can stand",
			"put a text that has `: ` in it in quotes; or the line above lacks its `:`, or is indented otherwise")
	case says("could not find expected ':'"):
		r.fail(opened, "not YAML: a key without a `:`", "write `key: value`, with a space after the `:`")
	case in("a block"):
		r.fail(at, "not YAML: "+e.Message,
			fmt.Sprintf("the list or map that this line should go on with begins at %s, column %d: indent it alike",
				r.position(opened), opened.column))
	case says("<document start>"):
		r.fail(at, "not YAML: the map that begins this file has ended before this line",
			"indent the keys at the top level alike")
	case says("block sequence entries are not allowed"):
		r.fail(at, "not YAML: no list can begin here",
			"begin it on the next line; or put a text that begins with `- ` in quotes")
	case says("without preceding whitespace"):
		r.fail(at, "not YAML: a comment needs a space before its `#`",
			"add the space; or put a text with `#` in it in quotes")
	case says("incompatible YAML"):
		r.fail(at, "not YAML 1.1: "+e.Message, "delete the line that begins with `%YAML`")
	default:
		r.fail(at, "not YAML: "+e.Message, e.ContextMsg)
	}
}
