package service

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// secretKind returns what kind of secret a text is beyond doubt, "" for none. It is refused as a setting that is no secret, because
// an operator has put it into the wrong variable.
func secretKind(text string) string {
	switch {
	case apikey.IsKey(text):
		return "an API key"
	case isToken(text):
		return "a token"
	case strings.Contains(text, "PRIVATE KEY-----"):
		return "a private key"
	}
	return ""
}

// isToken reports whether a text is a JWT: three parts, of which the first is a header with an algorithm.
func isToken(text string) bool {
	header, rest, _ := strings.Cut(text, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(header)
	var fields struct {
		Algorithm string `json:"alg"`
	}
	return err == nil && strings.Count(rest, ".") == 1 && json.Unmarshal(decoded, &fields) == nil && fields.Algorithm != ""
}

// mayBeSecret reports whether a text looks like a secret, or holds one of the secrets that are set. Names and paths can look so, too:
// such a value is accepted, but not shown.
func (e Environment) mayBeSecret(text string) bool {
	if startOfSecret.MatchString(text) || passwordText.MatchString(text) || secretKind(text) != "" ||
		randomText.MatchString(text) && (strings.HasSuffix(text, "=") || mixed(text)) {
		return true
	}
	for _, s := range List() {
		secret := e[s.Name]
		if s.field.Tag.Get("secret") == "true" && len(secret) >= minKnownSecret && strings.Contains(text, secret) {
			return true
		}
	}
	return false
}

// minKnownSecret is the least length of a secret that is looked for in other values: that of a server secret. A shorter password, such
// as the name of the service, may be in a path by chance.
const minKnownSecret = 16

var (
	startOfSecret = regexp.MustCompile(`ea_[0-9A-Za-z]{8}_|eyJ[0-9A-Za-z_-]{8,}\.`) // of an API key, of a token
	passwordText  = regexp.MustCompile(`:[^/]*@`)
	randomText    = regexp.MustCompile(`^[0-9A-Za-z+/_-]{22,}={0,2}$`) // 128 bits or more in base 64
)

// HasStartOfSecret reports whether a text holds what an API key or a token begins with.
func HasStartOfSecret(text string) bool { return startOfSecret.MatchString(text) }

// mixed reports whether a text has small letters, capitals and digits, as random ones do, and does not begin as a path does.
func mixed(text string) bool {
	return strings.ContainsFunc(text, unicode.IsLower) && strings.ContainsFunc(text, unicode.IsUpper) &&
		strings.ContainsFunc(text, unicode.IsDigit) && !strings.HasPrefix(text, "/")
}

// secretHider replaces each value of a setting that may be a secret by ${NAME}. Settings that are meant to hold a secret are not
// among them: no output has their values.
func (e Environment) secretHider() *strings.Replacer {
	var pairs [][2]string
	for _, s := range List() {
		name := s.Name
		if s.File {
			name += "_FILE"
		}
		for _, text := range e.shownForms(e[name]) {
			pairs = append(pairs, [2]string{text, "${" + name + "}"})
		}
	}
	slices.SortStableFunc(pairs, func(a, b [2]string) int { return len(b[0]) - len(a[0]) }) // the longest match counts
	var flat []string
	for _, pair := range pairs {
		flat = append(flat, pair[:]...)
	}
	return strings.NewReplacer(flat...)
}

// minShownPart is the least length of a directory that is replaced. A shorter one gives little of a secret away, and may be a word.
const minShownPart = 12

// shownForms returns how output may hold a value that may be a secret: as it is, as the path or directory that is made of it, its
// parts that are secrets themselves, and each of these quoted.
func (e Environment) shownForms(value string) (forms []string) {
	if !e.mayBeSecret(value) {
		return nil
	}
	forms = []string{value, filepath.Clean(value)}
	if dir := filepath.Dir(value); len(dir) >= minShownPart {
		forms = append(forms, dir)
	}
	for part := range strings.SplitSeq(value, "/") {
		if e.mayBeSecret(part) {
			forms = append(forms, part)
		}
	}
	for _, text := range forms {
		quoted := strconv.Quote(text)
		forms = append(forms, quoted[1:len(quoted)-1])
	}
	return forms
}

// HideSecrets returns a writer that writes ${NAME} in place of a value of the setting NAME that may be a secret. Each Write has to be
// a whole message, as those of fmt and slog are.
func (e Environment) HideSecrets(w io.Writer) io.Writer { return &hidingWriter{w, e.secretHider()} }

type hidingWriter struct {
	w      io.Writer
	hidden *strings.Replacer
}

// Write returns the length of what it was given, also when it has written less or more.
func (h *hidingWriter) Write(p []byte) (int, error) {
	if _, err := h.hidden.WriteString(h.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
