package envoyrls

import "github.com/extauthz/extauthz/pkg/ratelimit"

// FromProto is for tests.
var FromProto = fromProto

// Unmarshal is for tests: the query in a message.
func Unmarshal(b []byte) (ratelimit.Query, error) {
	var r request
	err := r.unmarshal(string(b))
	return r.query, err
}
