package settings

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/extauthz/extauthz/pkg/authz/apikey"
)

// secretKind returns the kind of secret that a text certainly is, "" for none. A setting that is not secret refuses it.
func secretKind(text string) string {
	switch {
	case apikey.IsKey(text):
		return "an API key"
	case token.MatchString(text):
		return "a token"
	case strings.Contains(text, "PRIVATE KEY-----"):
		return "a private key"
	}
	return ""
}

// readSecret returns the content of a file without the newline at its end.
func (e environment) readSecret(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil && (!strings.Contains(file, "/") || e.mayBeSecret(file)) {
		return "", errors.New("want the path of a file with the secret, such as /run/secrets/name; no file has this name " +
			"(not shown, because it may be the secret itself)")
	}
	return strings.TrimRight(string(content), "\r\n"), err
}

// mayBeSecret reports whether a text looks like a secret, or contains one of the secrets that are set. A name or a path
// can look like a secret, too: the value is accepted, but not shown.
func (e environment) mayBeSecret(text string) bool {
	random := randomText.MatchString(text) && (strings.HasSuffix(text, "=") || mixed(text))
	known := slices.ContainsFunc(List(), func(s Setting) bool {
		secret := e[s.Name]
		return len(secret) >= minKnownSecret && s.tag.Get("secret") == "true" && strings.Contains(text, secret)
	})
	return random || known || startOfSecret.MatchString(text) || passwordText.MatchString(text) || secretKind(text) != ""
}

// minKnownSecret is the minimum length of a secret that is looked for in other values, and that of a server secret. A
// shorter password, such as the name of the service, may be in a path by chance.
const minKnownSecret = 16

var (
	// token is a JWT: three parts, of which the first is a JSON object in Base64, at least {"alg":"none"}.
	token         = regexp.MustCompile(`^eyJ[0-9A-Za-z_-]{16,}\.[0-9A-Za-z_-]+\.[0-9A-Za-z_-]*$`)
	startOfSecret = regexp.MustCompile(`ea_[0-9A-Za-z]{8}_|eyJ[0-9A-Za-z_-]{8,}\.`) // an API key or a token
	passwordText  = regexp.MustCompile(`:[^/]*@`)
	randomText    = regexp.MustCompile(`^[0-9A-Za-z+/_-]{22,}={0,2}$`) // 128 bits or more in Base64
)

// HasStartOfSecret reports whether a text contains the beginning of an API key or a token.
func HasStartOfSecret(text string) bool { return startOfSecret.MatchString(text) }

// mixed reports whether a text has lower case, upper case and digits, as random texts do, and is no path from the root.
func mixed(text string) bool {
	return strings.ContainsFunc(text, unicode.IsLower) && strings.ContainsFunc(text, unicode.IsUpper) &&
		strings.ContainsFunc(text, unicode.IsDigit) && !strings.HasPrefix(text, "/")
}

// secretHider returns a replacer that puts ${NAME} for each value of a setting that may be a secret. It leaves out the
// settings for secrets, because no output has their values.
func (e environment) secretHider() *strings.Replacer {
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
	slices.SortStableFunc(pairs, func(a, b [2]string) int { return len(b[0]) - len(a[0]) }) // replace the longest match
	var flat []string
	for _, pair := range pairs {
		flat = append(flat, pair[:]...)
	}
	return strings.NewReplacer(flat...)
}

// minShownPart is the minimum length of a directory that is replaced. A shorter one may be a word.
const minShownPart = 12

// shownForms returns the forms in which output may contain a value that may be a secret. They are the value, its clean
// path, its directory, its parts that may be secrets, and each of these quoted.
func (e environment) shownForms(value string) (forms []string) {
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

// HideSecrets returns a writer that writes ${NAME} instead of a value of the setting NAME that may be a secret. Each
// Write must be a whole message, as those of fmt and slog are.
func HideSecrets(w io.Writer) io.Writer { return &hidingWriter{w, currentEnvironment().secretHider()} }

// Hide returns a text as HideSecrets writes it.
func Hide(text string) string { return Hider()(text) }

// Hider returns a function that does for many texts what Hide does.
func Hider() func(text string) string { return currentEnvironment().secretHider().Replace }

type hidingWriter struct {
	w      io.Writer
	hidden *strings.Replacer
}

// Write implements io.Writer. Without an error it returns len(p), although replacements change the length.
func (h *hidingWriter) Write(p []byte) (int, error) {
	if _, err := h.hidden.WriteString(h.w, string(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}
