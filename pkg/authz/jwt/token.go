package jwt

import (
	"bytes"
	"encoding/base64"
	stdjson "encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// token is a JWS in the compact form (RFC 7515, 7.1) whose signature has not been checked.
type token struct {
	header header
	claims map[string]any
	jws    *jose.JSONWebSignature
}

// header is the used part of the header of a token (RFC 7515, 4.1). keyID only finds a key among the issuer's keys.
type header struct {
	algorithm jose.SignatureAlgorithm
	keyID     string
}

// parse reads a token without checking its signature. It accepts no white space, stray bits or duplicate members.
func parse(text string, algorithms []string) (token, error) {
	parts, ok := split(text)
	if !ok {
		return token{}, credential.Invalid("malformed")
	}
	h, err := parseHeader(parts[0])
	if err != nil {
		return token{}, err
	}
	if !slices.Contains(algorithms, string(h.algorithm)) {
		return token{}, credential.Invalid("algorithm")
	}
	jws, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{h.algorithm})
	if err != nil || len(jws.Signatures) != 1 {
		return token{}, credential.Invalid("malformed")
	}
	claims, ok := parseClaims(parts[1])
	if !ok {
		return token{}, credential.Invalid("malformed")
	}
	return token{header: h, claims: claims, jws: jws}, nil
}

// signedBy returns the key that has signed the token.
func (t token) signedBy(keys []key) (key, bool) {
	for _, k := range keys {
		if _, err := t.jws.Verify(k.public); err == nil {
			return k, true
		}
	}
	return key{}, false
}

// split decodes the three parts of a token: header, claims, signature. A JWE has five, and the JSON forms have none.
func split(text string) (parts [3][]byte, ok bool) {
	if strings.ContainsAny(text, "\r\n") { // the decoder would skip them
		return parts, false
	}
	strict := base64.RawURLEncoding.Strict()
	for i := range parts {
		part, rest, more := strings.Cut(text, ".")
		if part == "" || more == (i == len(parts)-1) {
			return parts, false
		}
		decoded, err := strict.DecodeString(part)
		if err != nil {
			return parts, false
		}
		parts[i], text = decoded, rest
	}
	return parts, true
}

// parseHeader reads a header. It refuses a header with a key or the URL of one, with an extension, or of a JWE.
func parseHeader(text []byte) (header, error) {
	var members map[string]json.RawMessage
	if !utf8.Valid(text) || json.Unmarshal(text, &members) != nil {
		return header{}, credential.Invalid("malformed")
	}
	for _, name := range []string{"jku", "jwk", "x5u", "x5c", "crit", "b64", "enc", "zip"} {
		if _, present := members[name]; present {
			return header{}, credential.Invalid("header")
		}
	}
	var algorithm, keyID, use string
	for name, value := range map[string]*string{"alg": &algorithm, "kid": &keyID, "typ": &use} {
		if raw, present := members[name]; present && json.Unmarshal(raw, value) != nil {
			return header{}, credential.Invalid("malformed")
		}
	}
	if !forAccess(use) {
		return header{}, credential.Invalid("type")
	}
	return header{algorithm: jose.SignatureAlgorithm(algorithm), keyID: keyID}, nil
}

// forAccess reports whether a token of this type may be a credential. An issuer does not intend other types of JWT as
// credentials, such as logout+jwt, dpop+jwt or secevent+jwt. at+jwt is the type of RFC 9068.
func forAccess(use string) bool {
	use = strings.TrimPrefix(strings.ToLower(use), "application/")
	return use == "at+jwt" || !strings.HasSuffix(use, "+jwt")
}

// parseClaims reads a JSON object. A number becomes an int64 if it fits, else a float64.
func parseClaims(text []byte) (map[string]any, bool) {
	decoder := stdjson.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // so that no digit of an account number is lost
	var claims map[string]any
	if !utf8.Valid(text) || decoder.Decode(&claims) != nil || claims == nil { // also if it is nested deeply
		return nil, false
	}
	// This reader does not bound nesting. It refuses duplicate members: the upstream might read the other one.
	if json.Unmarshal(text, new(any)) != nil {
		return nil, false
	}
	for name, value := range claims {
		claims[name] = plain(value)
	}
	return claims, true
}

// plain converts the numbers in a value.
func plain(value any) any {
	switch v := value.(type) {
	case stdjson.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // out of range: ±Inf
		return f
	case map[string]any:
		for name, member := range v {
			v[name] = plain(member)
		}
	case []any:
		for i, element := range v {
			v[i] = plain(element)
		}
	}
	return value
}
