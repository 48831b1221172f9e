package main

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
)

func (p *program) doctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor [RULES...]",
		Short: "Find what is wrong with a running Envoy and Redis",
		Long: `extauthz doctor compares the configuration of a running Envoy with the rules, as extauthz check does.
It adds what only running systems know: failures at this moment, clusters and the version of Envoy; version, memory,
rights, persistence, latency and clock of Redis. It changes nothing.
It uses the environment of the service. RULES are its rule files; without them, those of the environment.
docs/reference/findings.md lists all findings. What could not be checked is a finding, too.
The exit code is 0 without findings, 1 with findings, and 2 if Envoy or Redis did not answer.`,
		Example: `  extauthz doctor --envoy http://127.0.0.1:9901 rules
  extauthz doctor --redis redis://redis:6379 -o json
  extauthz doctor --envoy http://127.0.0.1:9901 -o sarif rules >doctor.sarif`,
	}
	envoys := c.Flags().StringArray("envoy", nil, "`URL` of the admin interface of an Envoy; may be repeated")
	redis := c.Flags().String("redis", "", "`URL` of Redis; REDIS_AUTH has its password; default: REDIS_URL")
	output := command.OutputFlag(c, "text", "json", "sarif")
	c.RunE = p.withSettings(func(ctx context.Context, s *settings.Settings, paths []string) error {
		if *redis != "" {
			s.Redis.Main.URL, s.Redis.UsePerSecond, s.Limits.Backend = *redis, false, "redis"
		}
		if len(*envoys) == 0 && !s.UsesRedis() {
			return command.Usage("nothing to examine: want --envoy URL or --redis URL, or REDIS_URL")
		}
		for _, address := range *envoys {
			if !doctor.IsURL(address) {
				return command.Usage("--envoy %q: want a URL such as http://127.0.0.1:9901; extauthz check compares files", address)
			}
		}
		if len(paths) == 0 {
			paths = []string{s.Rules.Directory()}
		}
		if err := exist(paths); err != nil {
			return err
		}
		result := checkRules(paths, p.Stdin, service.RuleConfig(s), s.Answers.Status)
		if err := p.examine(ctx, result, s, *envoys); err != nil {
			return err
		}
		err := command.Reported(len(result.Problems) == 0)
		if slices.ContainsFunc(result.Reports, func(r *doctor.Report) bool { return r.Unread }) {
			err = command.ErrUnread
		}
		return errors.Join(p.printChecked(result, output), err)
	})
	return c
}

func (p *program) examine(ctx context.Context, result *checked, s *settings.Settings, envoys []string) error {
	cfg, err := service.RedisConfig(s)
	if err != nil {
		return err
	}
	rules := result.against(s)
	for _, address := range envoys {
		done := p.Working("reading the configuration and the counters of Envoy")
		configuration := doctor.Load(ctx, address, rules)
		configuration.Examine(ctx, address)
		result.report(&configuration.Report)
		done()
	}
	if s.UsesRedis() {
		defer p.Working("examining Redis")()
		result.report(doctor.ExamineRedis(ctx, "REDIS_URL", cfg, rules))
		if second := cfg.PerSecond; second != nil {
			second.KeyPrefix = cfg.KeyPrefix
			result.report(doctor.ExamineRedis(ctx, "REDIS_PERSECOND_URL", *second, rules))
		}
	}
	return nil
}

// sarif is a part of a SARIF 2.1.0 log, which code scanning shows beside the lines of files.
type sarif = map[string]any

func sarifLog(problems strictyaml.Problems) sarif {
	var kinds []sarif
	for _, k := range doctor.Kinds() {
		help := sarif{"text": strings.Join(k.Remedy, "\n")}
		kinds = append(kinds, sarif{"id": k.ID, "shortDescription": sarif{"text": k.Text}, "help": help})
	}
	results := []sarif{}
	for _, p := range problems {
		at := sarif{"artifactLocation": sarif{"uri": fileURI(p.File)}}
		if p.Line > 0 {
			at["region"] = sarif{"startLine": p.Line, "startColumn": p.Column, "endColumn": p.Column + max(p.Length, 1)}
		}
		results = append(results, sarif{
			"ruleId":    cmp.Or(p.ID, doctor.Kinds()[0].ID),
			"level":     p.Warning,
			"message":   sarif{"text": strings.Join(append([]string{p.Message}, p.Hints...), "\n")},
			"locations": []sarif{{"physicalLocation": at}},
		})
	}
	return sarif{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json",
		"version": "2.1.0",
		"runs": []sarif{{
			"tool": sarif{"driver": sarif{
				"name": "extauthz", "version": command.ThisBuild().Version,
				"informationUri": "https://github.com/extauthz/extauthz",
				"rules":          kinds,
			}},
			"columnKind": "unicodeCodePoints",
			"results":    results,
		}},
	}
}

// fileURI returns the URI of a path. The URI of a relative path is relative.
func fileURI(path string) string {
	if strings.Contains(path, "://") {
		return path // of a running system
	}
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}
