package policytest

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/suggest"
)

// The forms of requests, for messages.
const (
	limitForm = "limit DOMAIN KEY=VALUE,... [hits N] [xN] -> ..."
	checkForm = "check METHOD PATH [NAME:VALUE...] [domain DOMAIN] [host HOST] [source IP] [xN] -> ..."
)

// request reads the words of a request in the short form. They set the flags that extauthz explain has for a request.
func (p *parser) request(s *Step, verb word, words []word) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	request := command.AddRequestFlags(flags)
	s.Method = flow.Check
	first, options, form := []string{"method", "path"}, []string{"domain", "host", "source"}, checkForm
	if verb.text == "limit" {
		s.Method = flow.RateLimit
		first, options, form = []string{"domain"}, []string{"hits"}, limitForm
	}
	if len(words) < len(first) {
		p.fail(verb, suggest.Quoted(verb.text)+" needs more words", "write `"+form+"`")
		return
	}
	before := len(p.problems)
	for i, name := range first {
		p.flag(words[i], flags, name, words[i].text)
		if name == "path" && !strings.HasPrefix(words[i].text, "/") && words[i].text != "*" {
			p.fail(words[i], suggest.Quoted(words[i].text)+" is no path", "write `"+form+"`")
		}
	}
	headers := map[string]bool{}
	for words = words[len(first):]; len(words) > 0; words = words[1:] {
		w := words[0]
		name, _, isHeader := strings.Cut(w.text, ":")
		name = strings.ToLower(name)
		switch {
		case slices.Contains(options, w.text) && len(words) > 1:
			words = words[1:]
			p.option(words[0], flags, w.text)
		case s.Method == flow.RateLimit && strings.Contains(w.text, "="):
			p.flag(w, flags, "descriptor", w.text)
		case s.Method == flow.Check && isHeader && name != "" && name[0] != '@' && !headers[name]:
			headers[name] = true
			p.flag(w, flags, "header", w.text)
		case headers[name]:
			p.fail(w, "the header "+suggest.Quoted(name)+" is given twice", "join the values with commas, as Envoy does")
		default:
			p.unknown(w, "word", options, "write `"+form+"`, with a word with spaces in quotes")
		}
	}
	if len(p.problems) > before {
		return
	}
	message, err := request.Read(s.Method == flow.Check)
	if err != nil {
		p.fail(verb, "this is no request: "+err.Error(), "write `"+form+"`")
		return
	}
	b, err := proto.Marshal(message)
	if err != nil {
		p.fail(verb, "this is no request: "+err.Error())
	}
	s.Message = string(b)
}

// option sets a flag that has a name of its own.
func (p *parser) option(value word, flags *pflag.FlagSet, name string) {
	p.flag(value, flags, name, value.text)
	if _, err := netip.ParseAddr(value.text); name == "source" && err != nil {
		p.fail(value, suggest.Quoted(value.text)+" is no IP address", "want an address such as 192.0.2.7")
	}
}
