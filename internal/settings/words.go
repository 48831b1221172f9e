package settings

import (
	"encoding"
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Word is a value that is one of a list of words.
type Word interface {
	encoding.TextUnmarshaler
	Words() []string
}

// SetWord sets a value to one of its words. Case does not matter. The error does not show the text.
func SetWord(into Word, text string) error {
	if into.UnmarshalText([]byte(strings.ToLower(text))) != nil {
		return fmt.Errorf("want one of %s%s", strings.Join(into.Words(), ", "), suggest.Meant(text, into.Words()...))
	}
	return nil
}
