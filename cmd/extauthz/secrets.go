package main

import (
	"os"
	"regexp"
	"strings"
	"unicode"
)

// secretKind says what kind of secret a text seems to be, "" for none. Such a text is not taken as a setting that is no secret:
// somebody has put it into the wrong variable, and errors, logs and /rlconfig would show it. A password that looks like any other
// word is not found.
func secretKind(text string) string {
	for field := range fields() {
		name := field.Tag.Get("envconfig")
		if secret := os.Getenv(name); field.Tag.Get("secret") == "true" && len(secret) >= minKnownSecret && strings.Contains(text, secret) {
			return "the value of " + name
		}
	}
	switch {
	case apiKeyText.MatchString(text):
		return "an API key"
	case tokenText.MatchString(text):
		return "a token"
	case passwordText.MatchString(text):
		return "an address with a password"
	case randomText.MatchString(text) && (strings.HasSuffix(text, "=") || mixed(text)):
		return "a random secret"
	}
	return ""
}

// minKnownSecret is the least length of a secret that is looked for in other values. A shorter one may be in them by accident.
const minKnownSecret = 8

var (
	apiKeyText   = regexp.MustCompile(`ea_[0-9A-Za-z]{8}_`)
	tokenText    = regexp.MustCompile(`eyJ[0-9A-Za-z_-]{8,}\.`)
	passwordText = regexp.MustCompile(`:[^/]*@`)
	randomText   = regexp.MustCompile(`^[0-9A-Za-z+/_-]{22,}={0,2}$`) // 128 bits or more in base 64
)

// mixed reports whether a text has small letters, capitals and digits, as random ones do, and does not begin as a path does.
func mixed(text string) bool {
	return strings.ContainsFunc(text, unicode.IsLower) && strings.ContainsFunc(text, unicode.IsUpper) &&
		strings.ContainsFunc(text, unicode.IsDigit) && !strings.HasPrefix(text, "/")
}
