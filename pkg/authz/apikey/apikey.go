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

// A key is ea_<id>_<secret><checksum>, each part in base 62. The id is public: it finds the key and names it in logs.
// The secret has 190 random bits. The checksum is the CRC-32 of all that precedes it. It rejects typos without a
// lookup, and spares scanners for leaked secrets false alarms.
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

// NewKey returns a new key with this id, in the form that its owner receives.
func NewKey(id string) (string, error) {
	if !isID(id) {
		return "", fmt.Errorf("%q is not an id: want %d letters or digits", id, idLength)
	}
	body := prefix + id + "_" + random(secretLength)
	return body + checksum(body), nil
}

// CheckWeak returns an error if a text cannot be a weak key. The operator chooses weak keys, for tests. They must not
// look like keys of NewKey, and every client must be able to send them.
func CheckWeak(key string) error {
	switch {
	case key == "":
		return errors.New("a key cannot be empty")
	case len(key) > maxKey:
		return fmt.Errorf("a key has at most %d characters", maxKey)
	case strings.HasPrefix(key, prefix):
		return fmt.Errorf("a key that you choose cannot begin with %s", prefix)
	case strings.Trim(key, visible) != "":
		return errors.New("a key can have only visible ASCII characters, and no comma")
	}
	return nil
}

// visible are the visible characters of ASCII without the comma: proxies join headers of the same name with commas.
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

// IsKey reports whether a text has the form and the checksum of a key of NewKey.
func IsKey(text string) bool {
	_, ok := publicID(text)
	return ok
}

// publicID returns the id of a key. ok is false if the text has not the form or the checksum of a key.
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
