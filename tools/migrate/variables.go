package migrate

import (
	"errors"
	"fmt"
	"strings"
)

// Variables reads environment variables from the text of an env file: NAME=VALUE lines, as Docker reads them. Empty
// lines and lines that begin with # are skipped. `export ` before a name and quotes around a value are left out. The
// error lists every other line by its number and never shows it, because it may have a secret.
func Variables(file, text string) (map[string]string, error) {
	variables := map[string]string{}
	var mistakes []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t\"'") {
			mistakes = append(mistakes, fmt.Errorf("%s:%d: want NAME=VALUE", file, n))
			continue
		}
		value = strings.TrimSpace(value)
		if last := len(value) - 1; last > 0 && value[0] == value[last] && (value[0] == '"' || value[0] == '\'') {
			value = value[1:last]
		}
		variables[name] = value
	}
	return variables, errors.Join(mistakes...)
}
