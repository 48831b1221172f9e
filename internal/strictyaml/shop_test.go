package strictyaml_test

import (
	"errors"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// shop is a file with every kind of value.
type shop struct {
	Name    string  `yaml:"name" doc:"What the shop is called." example:"corner"`
	Shelves []shelf `yaml:"shelves" doc:"What stands in it."`
	Desk    *desk   `yaml:"desk,bare" doc:"Where people pay."`
	End     bool    `yaml:"end"`

	Left string // without a tag
}

type shelf struct {
	Label    string         `yaml:"label" example:"top"`
	Count    int64          `yaml:"count" min:"0" doc:"How many things can be on it." default:"10"`
	Weight   *uint32        `yaml:"weight" min:"1" max:"1000" example:"50"`
	Rank     int8           `yaml:"rank"`
	Steps    uint64         `yaml:"steps" doc:"How many things." default:"as many as fit"`
	Colour   colour         `yaml:"colour" default:"red"`
	Open     *bool          `yaml:"open" default:"true"`
	Wait     time.Duration  `yaml:"wait" example:"200ms"`
	Tags     []string       `yaml:"tags" min:"1" example:"[new, blue]"`
	Colours  []colour       `yaml:"colours"`
	Codes    []code         `yaml:"codes"`
	Code     *code          `yaml:"code"`
	Notes    map[string]any `yaml:"notes" example:"{floor: first}"`
	Lock     *lock          `yaml:"lock"`
	Locks    []lock         `yaml:"locks"`
	Shelves  []shelf        `yaml:"shelves"`
	Place    `yaml:",inline"`
	Position string `yaml:",position"`
}

// Place is inline in a shelf.
type Place struct {
	Row  int `yaml:"row" min:"1" max:"40"`
	Side string
	Back bool `yaml:"back"`
}

type desk struct {
	Staff int    `yaml:"staff" min:"0" max:"5"`
	Bell  *bell  `yaml:"bell,bare"`
	Drawn string `yaml:",position"`
}

type bell struct {
	Tone string `yaml:"tone"`
	Song *song  `yaml:"song" example:"la.la"`
	Sign *sign  `yaml:"sign"`
}

type sign struct {
	Text string   `yaml:"text" required:"true" example:"ring"`
	Tags []string `yaml:"tags" required:"true"`
}

type lock struct {
	Key   string `yaml:"key" oneof:"kind"`
	Digit *int   `yaml:"digit" min:"0" max:"9" oneof:"kind"`
	Light bool   `yaml:"light" oneof:"alarm,optional"`
	Noise bool   `yaml:"noise" oneof:"alarm,optional"`
}

type colour string

func (colour) Words() []string { return []string{"red", "green", "blue"} }

func (c *colour) UnmarshalText(text []byte) error {
	for _, word := range c.Words() {
		if strings.EqualFold(word, string(text)) {
			*c = colour(word)
			return nil
		}
	}
	return errors.New("no colour")
}

type code struct{ letters string }

func (c *code) UnmarshalText(text []byte) error {
	if !regexp.MustCompile(`^[A-Z]{3}$`).Match(text) {
		return errors.New("want three capital letters")
	}
	c.letters = string(text)
	return nil
}

// song is a text, which is split at its dots, or a list.
type song struct{ notes []string }

func (s *song) UnmarshalText(text []byte) error {
	s.notes = strings.Split(string(text), ".")
	return nil
}

func (s *song) UnmarshalList(notes []string) { s.notes = notes }

func shopKind() *strictyaml.Kind {
	return &strictyaml.Kind{
		Noun:   "shop file",
		Begins: "it begins with `name: <the shop>`",
		Empty:  "there is nothing in the file",
		Second: "a shop file is one document",
		Huge:   "no shop is that large",
		Sections: []strictyaml.Section{
			{
				Type: reflect.TypeFor[shelf](), Name: "a shelf",
				Belongs: "it belongs in an element of `shelves:`", Example: "- label: top",
				IfList:  "put the shelves one below the other",
				Remarks: map[string]string{"color": "it is spelt `colour` here"},
			},
			{Type: reflect.TypeFor[lock](), Key: "lock", Name: "the lock of a shelf", Example: "lock: {key: small}",
				IfList: "for several write `locks:`"},
		},
		MaxSize:   1 << 20,
		TooLarge:  "is this a shop file?",
		MaxValues: 100_000,
		Mask: func(text string) string {
			return regexp.MustCompile(`s3cret\w*`).ReplaceAllStringFunc(text,
				func(s string) string { return strings.Repeat("*", len(s)) })
		},
	}
}

func decode(text string) (shop, *strictyaml.Document) {
	var s shop
	doc := strictyaml.Decode(strictyaml.File{Name: "f", Content: []byte(text)}, shopKind(), &s)
	return s, doc
}
