package rulefile

// grammar is what one kind of file is: which keys stand where, and how messages speak of it. Everything else about YAML, its
// mistakes and where they stand is the same for all kinds.
type grammar struct {
	// noun is what such a file is called.
	noun string
	// holds names what is in it.
	holds string
	// begins says how it begins, for a file that is not one.
	begins string
	// empty is the message for a file with nothing in it.
	empty string
	// second says what to do with a second document.
	second string
	// sections lists all sections, those first in which a misplaced key is more likely meant.
	sections []sectionKeys
	// maxSize is how many bytes it can have at most, so that another file put there by mistake does not take the memory of a
	// sidecar; tooLarge is the hint then.
	maxSize  int64
	tooLarge string
	// maxValues is how many values a file can have at most, with what aliases repeat.
	maxValues int
	// mask takes what must not be seen out of messages, and maskLine out of lines of the file; they keep the length. nil hides
	// nothing.
	mask, maskLine func(text string) string
}

// maxFileSize bounds a file of rules.
const maxFileSize = 4 << 20

// ruleGrammar is that of files of rules. One as large as can be has some 350,000 values.
func ruleGrammar() grammar {
	return grammar{
		noun:      "rule file",
		holds:     "rules",
		begins:    "it begins with `domain: <name>`, the domain of Envoy's rate limit filter",
		empty:     "config file cannot have empty domain: there is nothing in the file",
		second:    "a rule file is one document with one domain: move what follows `---` into a file of its own",
		sections:  sections(),
		maxSize:   maxFileSize,
		tooLarge:  "is this a rule file? If so, split it and set MERGE_DOMAIN_CONFIG=true",
		maxValues: 500_000,
	}
}
