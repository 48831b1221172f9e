package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/internal/suggest"
)

// parseYAML returns the root of the one YAML document of a file. If there is none or the file is not YAML, it reports
// that and returns nil. The parser reads as that of envoyproxy/ratelimit does, which is of the same family (libyaml).
func parseYAML(doc *Document) *yaml.Node {
	loader, err := yaml.NewLoader(strings.NewReader(doc.text))
	if err != nil {
		failSyntax(doc, err)
		return nil
	}
	var root *yaml.Node
	for {
		var document yaml.Node
		err := loader.Load(&document)
		if errors.Is(err, io.EOF) {
			if root == nil {
				doc.fail(place{}, cmp.Or(doc.kind.Empty, "there is nothing in the file"), doc.kind.Begins)
			}
			return root
		}
		if err != nil {
			failSyntax(doc, err)
			return nil
		}
		switch {
		case len(document.Content) == 0, document.Content[0].Kind == yaml.ScalarNode && document.Content[0].Value == "":
			continue
		case root != nil:
			doc.fail(place{line: document.Line, column: document.Column}, "a second YAML document", doc.kind.Second)
			return root
		}
		root = document.Content[0]
	}
}

// checkText reports the first character that no YAML file may have: invalid UTF-8, a control character, or a line
// break that only some versions of YAML know. It returns false if there is one.
func (doc *Document) checkText() bool {
	for i, c := range doc.text {
		broken := c == utf8.RuneError && !strings.HasPrefix(doc.text[i:], "\ufffd")
		control := unicode.IsControl(c) && c != '\t' && c != '\n' || strings.ContainsRune("\u2028\u2029\ufeff", c)
		if !broken && !control {
			continue
		}
		above, line := strings.Count(doc.text[:i], "\n"), doc.text[strings.LastIndexByte(doc.text[:i], '\n')+1:i]
		at := place{line: above + 1, column: utf8.RuneCountInString(line) + 1}
		if broken {
			doc.fail(at, fmt.Sprintf("byte 0x%02x is not UTF-8", doc.text[i]), "save the file as UTF-8")
		} else {
			doc.fail(at, fmt.Sprintf("control character %U", c), "delete it, or write it as an escape between double quotes")
		}
		return false
	}
	return true
}

// failSyntax reports an error of the YAML parser, with a hint how to fix it.
func failSyntax(doc *Document, err error) {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		doc.fail(place{}, "not YAML: "+err.Error())
		return
	}
	at := place{line: e.Mark.Line, column: e.Mark.Column}
	opened := place{line: e.ContextMark.Line, column: e.ContextMark.Column}
	in := func(context string) bool { return strings.Contains(e.ContextMsg, context) }
	says := func(message string) bool { return strings.Contains(e.Message, message) }
	switch {
	case says("unknown anchor"):
		name := strings.TrimPrefix(firstWord(doc.textAt(at)), "*")
		at.word = true
		doc.fail(at, "no anchor "+suggest.Quoted("&"+name)+" above the alias "+suggest.Quoted("*"+name),
			"a text that begins with `*` needs quotes: "+suggest.Quoted(`"*`+name+`"`))
	case in("scanning an alias"), in("scanning an anchor"):
		word := firstWord(doc.textAt(opened))
		doc.fail(opened, "not YAML: a name is missing after "+suggest.Quoted(word[:min(1, len(word))]),
			"a text that begins with `*` or `&` needs quotes: "+suggest.Quoted(`"`+word+`"`))
	case in("quoted scalar") && (says("end of stream") || says("document indicator")):
		doc.fail(opened, "not YAML: this quote is never closed",
			"close it where the text ends; inside single quotes write `''` for a quote")
	case in("quoted scalar") && says("unknown escape"):
		doc.fail(at, "not YAML: "+e.Message,
			"between double quotes `\\` begins an escape: write `\\\\`, or use single quotes")
	case in("a flow") && at.line != opened.line && opened.line > 0:
		doc.fail(opened, "not YAML: this bracket is not closed", fmt.Sprintf("%s until line %d", e.Message, at.line))
	case in("a flow"):
		doc.fail(at, "not YAML: "+e.Message, "a comma or a closing bracket is missing")
	case says("cannot start any token") && strings.HasPrefix(doc.textAt(at), "\t"):
		doc.fail(at, "not YAML: indented with a tab", "indent with spaces: YAML does not allow tabs there")
	case says("cannot start any token"):
		word := firstWord(doc.textAt(at))
		doc.fail(at, "not YAML: a text cannot begin with "+suggest.Quoted(word[:min(1, len(word))]),
			"put the text in quotes: "+suggest.Quoted(`"`+word+`"`))
	case says("mapping values are not allowed"):
		doc.fail(at, "not YAML: a `:` where no key is allowed",
			"quote a text that contains `: `; or the line above lacks its `:`, or has another indentation")
	case says("could not find expected ':'"):
		doc.fail(opened, "not YAML: a key without a `:`", "write `key: value`, with a space after the `:`")
	case in("a block"):
		doc.fail(at, "not YAML: "+e.Message,
			fmt.Sprintf("this line should continue the list or map that begins at %s, column %d: use the same indentation",
				doc.position(opened), opened.column))
	case says("<document start>"):
		doc.fail(at, "not YAML: the map that begins this file has ended before this line",
			"give all keys of the top level the same indentation")
	case says("block sequence entries are not allowed"):
		doc.fail(at, "not YAML: no list can begin here",
			"begin the list on the next line, or quote a text that begins with `- `")
	case says("without preceding whitespace"):
		doc.fail(at, "not YAML: a comment needs a space before its `#`", "add the space, or quote a text that contains `#`")
	case says("incompatible YAML"):
		doc.fail(at, "not YAML 1.1: "+e.Message, "delete the line that begins with `%YAML`")
	default:
		doc.fail(at, "not YAML: "+e.Message, e.ContextMsg)
	}
}
