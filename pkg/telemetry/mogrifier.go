package telemetry

import (
	"regexp"
	"strconv"
	"strings"
)

// Mogrifier gives statistics a name and tags for DogStatsD, in which $1 stands for the first group of the pattern.
type Mogrifier struct {
	Pattern *regexp.Regexp
	Name    string
	// Tags are sent in their order.
	Tags []Tag
}

var groupNumber = regexp.MustCompile(`\$\d+`)

// mogrify returns the name and tags of a statistic. ok is false if the pattern does not match.
func (m *Mogrifier) mogrify(stat string) (name string, tags []string, ok bool) {
	groups := m.Pattern.FindStringSubmatch(stat)
	if groups == nil {
		return "", nil, false
	}
	fill := func(template string) string {
		return groupNumber.ReplaceAllStringFunc(template, func(group string) string {
			if i, err := strconv.Atoi(group[1:]); err == nil && i < len(groups) {
				return groups[i]
			}
			return group
		})
	}
	for _, tag := range m.Tags {
		value := strings.ReplaceAll(fill(tag.Value), ",", "_") // a comma ends a tag, and a client's value can have one
		tags = append(tags, tag.Key+":"+value)
	}
	return fill(m.Name), tags, true
}
