package credential

import (
	"errors"
	"unicode"
	"unicode/utf8"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Anonymous is the method of a client without a credential.
const Anonymous = "anonymous"

// Identity is the identity of the client that sends a request.
type Identity struct {
	// Method is the name of the kind of its credential, or Anonymous.
	Method string
	// Owner is the caller; it is empty only for anonymous.
	Owner string
	// Plan is what the owner pays for, "" for none.
	Plan string
	// KeyID is the public part of an API key, or the kid of a token's key.
	KeyID  string
	Labels map[string]string
	Scopes []string
	// Claims are those of a token.
	Claims map[string]any
	// Absent are the claims that the settings of a token name, and that it lacks or has in another form.
	Absent []string
	// Limit is the limit of the credential; nil for none.
	Limit *ratelimit.LimitSpec
}

// CheckText returns an error if a text cannot name an owner or a plan. The upstream receives these texts in headers.
// Proxies and applications trim headers, so that the owner `root ` would arrive as root, and cut them at control
// characters. Operators could mistake an owner with an invisible character for another one.
func CheckText(text string) error {
	if isVisible(text) {
		return nil
	}
	if !utf8.ValidString(text) {
		return errors.New("want valid UTF-8")
	}
	first, _ := utf8.DecodeRuneInString(text)
	last, _ := utf8.DecodeLastRuneInString(text)
	switch {
	case text == "":
		return errors.New("want a text")
	case Trimmed(first) || Trimmed(last):
		return errors.New("want a text without white space at its ends")
	}
	for i, c := range text {
		switch {
		case unicode.IsControl(c) || c == '\u2028' || c == '\u2029': // the last two are line breaks to some readers
			return errors.New("want a text without control characters")
		case invisible(c) && !joins(text[:i], c, text[i+utf8.RuneLen(c):]):
			return errors.New("want a text without invisible characters")
		case c == utf8.RuneError: // readers put it in place of what they cannot read: two texts may then be equal
			return errors.New("want a text without U+FFFD, the replacement character")
		}
	}
	return nil
}

// isVisible reports whether a text has only visible characters of ASCII, and at least one. Almost all names do.
func isVisible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return text != ""
}

// Trimmed reports whether a program may trim a character: white space, or an invisible one (JavaScript trims U+FEFF).
func Trimmed(c rune) bool { return unicode.IsSpace(c) || invisible(c) }

// joins reports whether c is U+200D or U+200C inside a word, where Persian and the scripts of India need it.
func joins(before string, c rune, after string) bool {
	last, _ := utf8.DecodeLastRuneInString(before)
	next, _ := utf8.DecodeRuneInString(after)
	inWord := func(c rune) bool { return unicode.In(c, unicode.Letter, unicode.Mark) && !invisible(c) }
	return (c == '\u200c' || c == '\u200d') && inWord(last) && inWord(next)
}

// invisible reports whether c is invisible: a format character, one that fonts may ignore, or blank braille.
func invisible(c rune) bool {
	return c > unicode.MaxASCII && (c == '\u2800' ||
		unicode.In(c, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point))
}
