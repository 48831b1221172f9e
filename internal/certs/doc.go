// Package certs reads certificates, keys and authorities from files. Each handshake reads the files again, so that
// renewed files take effect on new connections without a restart. Files that are broken, or that are just being
// written, leave the previous certificates in use.
package certs
