// Package apikey makes and checks API keys. A key is shown once, when it is made; what is kept of it is an HMAC under a secret
// of the service, so that neither a copy of the key file nor one of Redis lets anybody in.
package apikey

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
)

// A key is ea_<id>_<secret><checksum>, all of them in base 62: the public id by which it is found and named in logs, 190 bits
// that only its owner knows, and the CRC-32 of all that stands before it. By the last one typing mistakes are told from keys
// without looking anything up, and scanners for leaked secrets find no false ones.
const (
	prefix         = "ea_"
	idLength       = 8
	secretLength   = 32
	checksumLength = 6
	keyLength      = len(prefix) + idLength + 1 + secretLength + checksumLength
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewID returns a random id.
func NewID() string { return random(idLength) }

// NewKey returns a new key with this id, as its owner is given it.
func NewKey(id string) (string, error) {
	if !isID(id) {
		return "", fmt.Errorf("%q is no id: want %d letters or digits", id, idLength)
	}
	body := prefix + id + "_" + random(secretLength)
	return body + checksum(body), nil
}

// CheckWeak returns an error if a text cannot be a weak key. Weak keys are texts of somebody's choice, for trying
// things out: they must not look like keys of ours, and be such that every client can send them.
func CheckWeak(key string) error {
	switch {
	case key == "":
		return errors.New("a key is not empty")
	case len(key) > maxKey:
		return fmt.Errorf("a key has at most %d characters", maxKey)
	case strings.HasPrefix(key, prefix):
		return fmt.Errorf("a key of your own does not begin with %s", prefix)
	case strings.Trim(key, visible) != "":
		return errors.New("a key has visible ASCII characters only, and no comma")
	}
	return nil
}

// visible are the visible characters of ASCII but for the comma, with which proxies join headers of the same name.
const visible = base62 + "!\"#$%&'()*+-./:;<=>?@[\\]^_`{|}~"

// Mask hides the secrets of all keys in a text. Their prefixes and ids stay.
func Mask(text string) string {
	if !strings.Contains(text, prefix) {
		return text
	}
	return regexp.MustCompile(prefix+`[0-9A-Za-z]{0,8}_?[0-9A-Za-z]*`).ReplaceAllStringFunc(text, func(key string) string {
		shown := min(len(key), len(prefix)+idLength+1)
		return key[:shown] + strings.Repeat("*", len(key)-shown)
	})
}

// IsKey reports whether a text is a key that NewKey can have made, by its form and checksum.
func IsKey(text string) bool {
	_, ok := publicID(text)
	return ok
}

// publicID returns the id of a key. ok is false when the text is no key, by its form or its checksum.
func publicID(key string) (id string, ok bool) {
	if len(key) != keyLength || !strings.HasPrefix(key, prefix) || key[len(prefix)+idLength] != '_' {
		return "", false
	}
	body, sum := key[:keyLength-checksumLength], key[keyLength-checksumLength:]
	id = body[len(prefix) : len(prefix)+idLength]
	return id, isID(id) && checksum(body) == sum
}

func isID(id string) bool {
	for _, c := range []byte(id) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return len(id) == idLength
}

func random(length int) string {
	text := make([]byte, length)
	for i := range text {
		digit, _ := rand.Int(rand.Reader, big.NewInt(int64(len(base62)))) // rand.Reader never fails
		text[i] = base62[digit.Int64()]
	}
	return string(text)
}

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	var text [checksumLength]byte
	for i := len(text) - 1; i >= 0; i-- {
		text[i] = base62[sum%62]
		sum /= 62
	}
	return string(text[:])
}
