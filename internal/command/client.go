package command

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/certs"
)

// TLSFlags are the flags of a connection to a service.
type TLSFlags struct {
	on    bool
	files certs.ClientFiles
}

// AddTLSFlags adds the flags of a connection to a service.
func AddTLSFlags(flags *pflag.FlagSet) *TLSFlags {
	f := &TLSFlags{}
	flags.BoolVar(&f.on, "tls", false, "connect with TLS")
	flags.StringVar(&f.files.CA, "tls-ca", "", "`FILE` of the CA of the service; default: the CAs of the system")
	flags.StringVar(&f.files.Cert, "tls-cert", "", "`FILE` of the certificate of this client")
	flags.StringVar(&f.files.Key, "tls-key", "", "`FILE` of the key of that certificate")
	flags.StringVar(&f.files.ServerName, "tls-name", "", "`NAME` in the certificate of the service; default: the host of "+
		"--address")
	return f
}

// Client returns the files of the connection, nil for plaintext.
func (f *TLSFlags) Client() (*certs.ClientFiles, error) {
	switch {
	case (f.files.Cert == "") != (f.files.Key == ""):
		return nil, Usage("--tls-cert and --tls-key: set both or none")
	case !f.on && f.files.CA+f.files.Cert+f.files.Key+f.files.ServerName != "":
		return nil, Usage("--tls-ca, --tls-cert, --tls-key and --tls-name need --tls")
	case !f.on:
		return nil, nil //nolint:nilnil // nil is plaintext
	}
	return &f.files, nil
}

// Headers reads the values of a flag for headers: NAME:VALUE, or @FILE with one a line.
func Headers(list []string) (map[string]string, error) {
	headers := map[string]string{}
	for _, lines := range list {
		if name, ok := strings.CutPrefix(lines, "@"); ok {
			content, err := os.ReadFile(name)
			if err != nil {
				return nil, Usage("--header: %w", err)
			}
			lines = strings.TrimSpace(string(content))
		}
		for line := range strings.Lines(lines) {
			name, value, found := strings.Cut(strings.TrimSpace(line), ":")
			value = strings.TrimSpace(value)
			if !found || name == "" || strings.ContainsFunc(name+value, unicode.IsControl) {
				return nil, Usage("--header: want NAME:VALUE, or @FILE with one a line")
			}
			headers[strings.ToLower(name)] = value
		}
	}
	return headers, nil
}

// DescriptorTo returns the setter of a flag that appends a descriptor to a list.
func DescriptorTo(list *[]*ratelimitv3.RateLimitDescriptor) func(text string) error {
	return func(text string) error {
		d, err := Descriptor(text)
		*list = append(*list, d)
		return err
	}
}

// Descriptor reads a descriptor in the form KEY=VALUE,...
func Descriptor(text string) (*ratelimitv3.RateLimitDescriptor, error) {
	d := new(ratelimitv3.RateLimitDescriptor)
	for pair := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("want KEY=VALUE, or several with commas, not %q", pair)
		}
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d, nil
}
