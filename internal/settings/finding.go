package settings

import (
	"errors"
	"strings"
)

// Finding is what the operator should know about one setting.
type Finding struct {
	Setting string // name of the variable
	// Text is read after the name and a colon, unless it begins with the name.
	Text string
}

// String returns the finding as one line that begins with the setting.
func (f Finding) String() string {
	if strings.HasPrefix(f.Text, f.Setting) {
		return f.Text
	}
	return f.Setting + ": " + f.Text
}

// Error implements error.
func (f Finding) Error() string { return f.String() }

// Findings returns those of an error of [Read].
func Findings(err error) (list []Finding) {
	joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	if !ok {
		return nil
	}
	for _, err := range joined.Unwrap() {
		if f, ok := errors.AsType[Finding](err); ok {
			list = append(list, f)
		}
	}
	return list
}
