package rules

import (
	"regexp"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// Mask hides API keys and JWTs, which may be in a rule file by mistake. It keeps the length of a text. Keys of
// descriptors such as `area_restrictions`, and other texts with such a beginning, stay readable.
func Mask(text string) string {
	if !strings.Contains(text, "ea_") && !strings.Contains(text, "eyJ") {
		return text
	}
	const begins = `(?:\b|_)` // messages join the key and the value of a descriptor with `_`
	tokens := regexp.MustCompile(begins + `eyJ[0-9A-Za-z_-]{12,}(?:\.[0-9A-Za-z_-]*)*`)
	text = tokens.ReplaceAllStringFunc(text, func(token string) string {
		shown := strings.Index(token, "eyJ") + len("eyJ")
		return token[:shown] + strings.Repeat("*", len(token)-shown)
	})
	keys := regexp.MustCompile(begins + `ea_[0-9A-Za-z]{8}_[0-9A-Za-z]{12,}`)
	return keys.ReplaceAllStringFunc(text, apikey.Mask)
}
