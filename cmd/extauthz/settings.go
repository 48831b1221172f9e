package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/suggest"
)

// listedSetting is a setting with its value in effect, "" for none, also if the environment has mistakes.
type listedSetting struct {
	settings.Setting
	Value string `json:"value,omitempty"`
}

func (p *program) settings() *cobra.Command {
	c := &cobra.Command{
		Use:   "settings [NAME]",
		Short: "List all environment variables, with their values and meaning, or explain one",
		Long: "extauthz settings lists all settings in groups. Each setting is an environment variable.\n" +
			"It shows the value in effect, and the default of a setting that has another value.\n" +
			"NAME is a setting, or the title of a group. A secret is only shown as (set).\n" +
			"A secret can also come from a file: set NAME_FILE to its path.\n" +
			"It reports the mistakes in the variables that are set, and the settings without effect, to stderr.\n" +
			"With mistakes, no value is in effect.",
		Example: "  extauthz settings | grep REDIS\n  extauthz settings REDIS_TIMEOUT\n  extauthz settings listeners",
		Args:    command.Wants(cobra.MaximumNArgs(1), "one setting at most, such as REDIS_TIMEOUT"),
	}
	output := command.OutputFlag(c, "text", "json")
	c.RunE = func(_ *cobra.Command, args []string) error {
		now, mistakes := p.readSettings()
		var list []listedSetting
		var words []string
		for _, s := range settings.List() {
			words = append(words, s.Name, s.Group)
			if len(args) > 0 && !strings.EqualFold(args[0], s.Name) && !strings.EqualFold(args[0], s.Group) {
				continue
			}
			one := listedSetting{s, ""}
			if mistakes == nil {
				one.Value = now.InEffect(s)
			}
			list = append(list, one)
		}
		if len(list) == 0 {
			return command.Usage("there is no setting or group %q%s", args[0], suggest.Meant(args[0], words...))
		}
		err := output.Print(p.Stdout, list, func() error {
			rows := settingRows(list)
			if len(list) == 1 {
				rows = list[0].rows()
			}
			return command.PrintTable(p.Stdout, p.Width, rows)
		})
		if err == nil && mistakes == nil {
			p.warn(now)
		}
		return cmp.Or(err, mistakes)
	}
	return c
}

// settingRows returns the rows of a table of settings, with the title of each group above it.
func settingRows(list []listedSetting) (rows [][]string) {
	group := ""
	for _, s := range list {
		if s.Group != group {
			if group = s.Group; rows != nil {
				rows = append(rows, []string{""})
			}
			rows = append(rows, []string{group + ":"})
		}
		meaning := s.Meaning
		if s.Value != s.Default && s.Default != "" {
			meaning += " (default " + s.Default + ")"
		}
		rows = append(rows, []string{s.Name, s.Value, meaning})
	}
	return rows
}

// rows returns all about one setting.
func (s *listedSetting) rows() [][]string {
	rows := [][]string{
		{"group", s.Group}, {"in effect", s.Value}, {"default", s.Default}, {"example", s.Example}, {"meaning", s.Meaning},
	}
	return slices.DeleteFunc(rows, func(row []string) bool { return row[1] == "" })
}

// warn reports the settings without effect, as the log does at the start.
func (p *program) warn(s *settings.Settings) {
	for _, warning := range s.Warnings {
		fmt.Fprintf(p.Stderr, "warning: %s\n", warning)
	}
}
