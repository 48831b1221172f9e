package rulefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// ErrNoKey says that a file has no key with the id.
var ErrNoKey = errors.New("no key with this id")

// keyFileHead begins a new file of API keys.
const keyFileHead = "# API keys of extauthz. What is kept of a key is its HMAC under API_KEY_SECRET; `extauthz keys` edits this file.\nkeys:\n"

// AddKey returns the file with one key more, at its end. Everything else in it stays as it is. A file without content is begun.
func AddKey(file File, record apikey.Record) ([]byte, error) {
	if len(bytes.TrimSpace(file.Content)) == 0 {
		return []byte(keyFileHead + "  - " + keyText(record, "\n    ") + "\n"), nil
	}
	return editKeys(file, func(r *report, records []apikey.Record, list *yaml.Node) ([]apikey.Record, []edit, error) {
		if slices.ContainsFunc(records, func(other apikey.Record) bool { return other.ID == record.ID }) {
			return nil, nil, fmt.Errorf("there is a key with the id %q already", record.ID)
		}
		return append(records, record), additions(r, list, record), nil
	})
}

// ChangeKey returns the file with the hash, the previous hash and disabled of a key as in the record. Everything else in it stays
// as it is. The error is ErrNoKey when there is no key with this id.
func ChangeKey(file File, record apikey.Record) ([]byte, error) {
	return editKeys(file, func(r *report, records []apikey.Record, list *yaml.Node) ([]apikey.Record, []edit, error) {
		i := slices.IndexFunc(records, func(other apikey.Record) bool { return other.ID == record.ID })
		if i < 0 {
			return nil, nil, ErrNoKey
		}
		e := keyEditor{report: r, node: list.Content[i]}
		if record.Hash != records[i].Hash {
			e.set("hash", record.Hash.String())
		}
		if record.Disabled != records[i].Disabled {
			e.set("disabled", fmt.Sprint(record.Disabled))
		}
		if record.Previous != nil && (records[i].Previous == nil || *record.Previous != *records[i].Previous) {
			e.setPrevious(*record.Previous)
		}
		records[i].Hash, records[i].Disabled, records[i].Previous = record.Hash, record.Disabled, record.Previous
		return records, e.edits, nil
	})
}

// edit replaces some characters of a line.
type edit struct {
	at     place
	length int
	text   string
}

// editKeys changes the text of a file where the edits say, and makes sure that the file then has the records that it is to have:
// there are many ways to write YAML, and one that is not understood here must not be damaged.
func editKeys(file File, plan func(*report, []apikey.Record, *yaml.Node) ([]apikey.Record, []edit, error)) ([]byte, error) {
	before, problems := ParseKeys(file)
	if problems.HasErrors() {
		return nil, problems
	}
	r := newReport(file, keyGrammar())
	root := parseYAML(r)
	list := valueOf(root, "keys")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, errByHand
	}
	want, edits, err := plan(r, before.Records, list)
	if err != nil {
		return nil, err
	}
	after := []byte(restoreBreaks(file.Content, applyEdits(r.lines, edits)))
	got, problems := ParseKeys(File{Name: file.Name, Content: after})
	if problems.HasErrors() || !sameRecords(got.Records, want) {
		return nil, errByHand
	}
	return after, nil
}

var errByHand = errors.New("the file is written in a way that cannot be edited without changing more than this one key: edit it by hand, or write the key as `- id: ...` with one line for each of its keys")

// applyEdits returns the text of the lines with the edits applied, the last first, so that no place moves before its turn.
func applyEdits(lines []string, edits []edit) string {
	lines = slices.Clone(lines)
	slices.SortStableFunc(edits, func(a, b edit) int {
		return cmp.Or(cmp.Compare(b.at.line, a.at.line), cmp.Compare(b.at.column, a.at.column))
	})
	for _, e := range edits {
		line := []rune(lines[e.at.line-1])
		from := min(e.at.column-1, len(line))
		to := min(from+e.length, len(line))
		lines[e.at.line-1] = string(line[:from]) + e.text + string(line[to:])
	}
	return strings.Join(lines, "\n")
}

// restoreBreaks writes a text with the line breaks and the byte order mark that a file has.
func restoreBreaks(original []byte, text string) string {
	if bytes.Contains(original, []byte("\r\n")) {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	if bytes.HasPrefix(original, []byte("\ufeff")) {
		text = "\ufeff" + text
	}
	return text
}

func sameRecords(a, b []apikey.Record) bool {
	return slices.EqualFunc(a, b, func(a, b apikey.Record) bool {
		textA, errA := a.Encode()
		textB, errB := b.Encode()
		return errA == nil && errB == nil && a.ID == b.ID && bytes.Equal(textA, textB)
	})
}

// additions put a record behind the last one of the list.
func additions(r *report, list *yaml.Node, record apikey.Record) []edit {
	at := place{line: list.Line, column: list.Column}
	switch {
	case list.Style&yaml.FlowStyle == 0:
		last := lastLine(r.lines)
		indent := strings.Repeat(" ", list.Column-1)
		end := place{line: last, column: len([]rune(r.lines[last-1])) + 1}
		return []edit{{at: end, text: "\n" + indent + "- " + keyText(record, "\n  "+indent)}}
	case len(list.Content) == 0:
		brackets := edit{at: at, length: strings.IndexByte(r.textAt(at), ']') + 1}
		end := place{line: at.line, column: len([]rune(r.lines[at.line-1])) + 1}
		return []edit{brackets, {at: end, text: "\n  - " + keyText(record, "\n    ")}}
	}
	for n := len(r.lines); n > 0; n-- {
		if bracket := strings.LastIndexByte(r.lines[n-1], ']'); bracket >= 0 {
			before := strings.TrimRight(r.lines[n-1][:bracket], " \t,")
			end := place{line: n, column: len([]rune(before)) + 1}
			if before == "" { // the bracket is alone on its line: put the key on one of its own before it
				return []edit{{at: end, text: "  , {" + keyText(record, ", ") + "}\n"}}
			}
			return []edit{{at: end, text: ", {" + keyText(record, ", ") + "}"}}
		}
	}
	return nil
}

// lastLine is the number of the last line with anything on it.
func lastLine(lines []string) int {
	n := len(lines)
	for n > 1 && strings.TrimSpace(lines[n-1]) == "" {
		n--
	}
	return n
}

// keyEditor gathers the edits of one record.
type keyEditor struct {
	*report
	node  *yaml.Node
	edits []edit
}

// set gives a key a value: in place of the one it has, or behind the hash, which every record has.
func (e *keyEditor) set(name, text string) {
	if old := valueOf(e.node, name); old != nil {
		e.replace(old, text)
		return
	}
	hash := valueOf(e.node, "hash")
	if hash == nil {
		return
	}
	at := e.place(hash)
	end := place{line: at.line, column: at.column + e.length(at)}
	if e.node.Style&yaml.FlowStyle != 0 {
		e.edits = append(e.edits, edit{at: end, text: ", " + name + ": " + text})
		return
	}
	end.column = len([]rune(e.lines[at.line-1])) + 1 // behind a comment
	indent := strings.Repeat(" ", max(0, e.node.Column-1))
	e.edits = append(e.edits, edit{at: end, text: "\n" + indent + name + ": " + text})
}

// setPrevious gives a key its previous hash. Of one that is there both values are replaced, wherever they stand.
func (e *keyEditor) setPrevious(p apikey.Previous) {
	old := valueOf(e.node, "previous")
	hash, until := valueOf(old, "hash"), valueOf(old, "valid_until")
	if hash == nil || until == nil {
		e.set("previous", previousText(p))
		return
	}
	e.replace(hash, p.Hash.String())
	e.replace(until, timeText(p.ValidUntil))
}

// replace puts a text in the place of a single value, in the quotes that it has; others stay, and the check of the whole file
// finds that.
func (e *keyEditor) replace(old *yaml.Node, text string) {
	if old.Style&yaml.DoubleQuotedStyle != 0 {
		text = `"` + text + `"`
	}
	if at := e.place(old); old.Kind == yaml.ScalarNode {
		e.edits = append(e.edits, edit{at: at, length: e.length(at), text: text})
	}
}

func (e *keyEditor) place(n *yaml.Node) place {
	return place{line: n.Line, column: n.Column, node: n}
}

// valueOf returns the value of a key of a mapping, nil for none.
func valueOf(mapping *yaml.Node, name string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}
