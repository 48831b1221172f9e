package main

import (
	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/certs"
)

// tlsFlags are the flags of a connection to a service.
type tlsFlags struct {
	on    bool
	files certs.ClientFiles
}

func addTLSFlags(flags *pflag.FlagSet) *tlsFlags {
	f := &tlsFlags{}
	flags.BoolVar(&f.on, "tls", false, "connect with TLS")
	flags.StringVar(&f.files.CA, "tls-ca", "", "`FILE` of the CA of the service; default: the CAs of the system")
	flags.StringVar(&f.files.Cert, "tls-cert", "", "`FILE` of the certificate of this client")
	flags.StringVar(&f.files.Key, "tls-key", "", "`FILE` of the key of that certificate")
	flags.StringVar(&f.files.ServerName, "tls-name", "", "`NAME` in the certificate of the service; default: the host of "+
		"--address")
	return f
}

// client returns the files of the connection, nil for plaintext.
func (f *tlsFlags) client() (*certs.ClientFiles, error) {
	switch {
	case (f.files.Cert == "") != (f.files.Key == ""):
		return nil, usage("--tls-cert and --tls-key: set both or none")
	case !f.on && f.files.CA+f.files.Cert+f.files.Key+f.files.ServerName != "":
		return nil, usage("--tls-ca, --tls-cert, --tls-key and --tls-name need --tls")
	case !f.on:
		return nil, nil //nolint:nilnil // nil is plaintext
	}
	return &f.files, nil
}
