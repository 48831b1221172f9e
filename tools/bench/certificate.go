package main

import (
	"context"
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/extauthz/extauthz/internal/certs"
)

// certificate writes a certificate for 127.0.0.1 and its key into a directory, with a program of Go's source. It
// returns their files, and the configuration of a client that trusts the certificate.
func certificate(ctx context.Context, dir string) (cert, key string, config *tls.Config, err error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", "", nil, err
	}
	program := filepath.Join(strings.TrimSpace(string(root)), "src", "crypto", "tls", "generate_cert.go")
	cmd := exec.CommandContext(ctx, "go", "run", program, "-ca", "-ecdsa-curve=P256", "-host=127.0.0.1")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", "", nil, err
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	client, err := certs.NewClient(certs.ClientFiles{CA: cert})
	if err != nil {
		return "", "", nil, err
	}
	return cert, key, client.Config(), nil
}
