package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

func (p *program) buckets() *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "buckets",
		Short: "Show and reset buckets",
		Long: "extauthz buckets shows what clients have used of their limits, and gives them the full limit again.\n" +
			"It finds the buckets by the rules and settings of the service.",
		Example: "  extauthz buckets show --domain shop --descriptor api_key=4711\n" +
			"  extauthz buckets top",
	}, p.bucketsShow(), p.bucketsTop(), p.bucketsReset())
}

func (p *program) bucketsShow() *cobra.Command {
	c := &cobra.Command{
		Use:   "show",
		Short: "Show what buckets hold",
		Long: "extauthz buckets show prints what is used of limits, and when all of it is free again. It changes nothing.\n" +
			"It shows the buckets of a descriptor, of an API key, or of a rule: the 100 fullest, only in Redis, whose user\n" +
			"needs +scan for that.\n" +
			"The limit of a credential is shown if it is active in place of that of the rule.\n" +
			"Its live holds follow a bucket, up to 20, the first to expire first; -o json has all. A rule has sums only.\n" +
			"With --debug it asks a running service, also for buckets in memory, or its last known state without Redis.\n" +
			"Otherwise it needs the service's environment: its rules, REDIS_URL, CACHE_KEY_PREFIX, COMPATIBILITY, API keys.",
		Example: "  extauthz buckets show --domain shop --descriptor api_key=4711\n" +
			"  extauthz buckets show --domain shop --key-id k7Ua3xyz --debug localhost:6070\n" +
			"  extauthz buckets show --domain shop --rule per-tenant -o json",
		Args: command.NoArguments(""),
	}
	output := command.OutputFlag(c, "text", "json")
	q := bucketFlags(c)
	c.Flags().StringVar(&q.KeyID, "key-id", "", "the `ID` of an API key, as extauthz keys list shows it")
	c.Flags().StringVar(&q.Rule, "rule", "", "the `NAME` of a rule, as logs and metrics have it")
	debug := c.Flags().String("debug", "", "`HOST:PORT` of the debug listener of a running service")
	c.RunE = p.withSettings(func(ctx context.Context, s *settings.Settings, _ []string) (err error) {
		given := []bool{q.Entries != nil, q.KeyID != "", q.Rule != ""}
		given = slices.DeleteFunc(given, func(is bool) bool { return !is })
		shown := new(service.Buckets)
		switch {
		case q.Domain == "":
			return command.Usage("missing --domain DOMAIN")
		case len(given) != 1:
			return command.Usage("want one of --descriptor KEY=VALUE,..., --key-id ID and --rule NAME")
		case *debug == "":
			err = p.offline(ctx, s, nil, func(o *service.Offline) error {
				shown, err = o.Buckets(ctx, *q, nil)
				return err
			})
		default:
			body, _ := json.Marshal(q) //nolint:errchkjson // texts
			err = askDebug(ctx, *debug, "/buckets", body, shown)
		}
		if err != nil {
			return err
		}
		return output.Print(p.Stdout, shown, func() error { return p.printBuckets("", shown) })
	})
	return c
}

func (p *program) bucketsReset() *cobra.Command {
	c := &cobra.Command{
		Use:   "reset",
		Short: "Give clients the full limit again",
		Long: "extauthz buckets reset empties the buckets of a descriptor: all limits of the rule that matches it.\n" +
			"If the descriptor names an API key or its owner, and the key has a limit of its own, that limit is reset, too.\n" +
			"It needs the environment of the service: its rules, REDIS_URL, CACHE_KEY_PREFIX, COMPATIBILITY and API keys.\n" +
			"Replicas know it within a second. Do not delete keys in Redis instead: replicas restore what they remember.",
		Example: "  extauthz buckets reset --domain shop --descriptor api_key=4711\n" +
			"  extauthz buckets reset --domain shop --descriptor action=buy,user=ann --dry-run -o json",
		Args: command.NoArguments(""),
	}
	output := command.OutputFlag(c, "text", "json")
	q := bucketFlags(c)
	dry := c.Flags().Bool("dry-run", false, "show the buckets and change nothing")
	c.RunE = p.withSettings(func(ctx context.Context, s *settings.Settings, _ []string) error {
		switch {
		case q.Domain == "":
			return command.Usage("missing --domain DOMAIN")
		case q.Entries == nil:
			return command.Usage("missing --descriptor KEY=VALUE,...")
		case !s.UsesRedis():
			return errors.New("the buckets are in the memory of each replica, and only those in Redis can be reset: set " +
				"REDIS_URL, or restart the replica")
		}
		done := "not reset"
		var shown *service.Buckets
		err := p.offline(ctx, s, nil, func(o *service.Offline) (err error) {
			if shown, err = o.Buckets(ctx, *q, nil); err != nil || *dry {
				return err
			}
			done = "reset"
			return o.Reset(ctx, *q)
		})
		if err != nil {
			return err
		}
		return output.Print(p.Stdout, shown.Buckets, func() error { return p.printBuckets(done, shown) })
	})
	return c
}

func bucketFlags(c *cobra.Command) *service.BucketQuery {
	q := new(service.BucketQuery)
	c.Flags().StringVar(&q.Domain, "domain", "", "`DOMAIN` of the rules")
	c.Flags().Func("descriptor", "the descriptor, as `KEY=VALUE,...`", func(text string) error {
		d, err := command.Descriptor(text)
		q.Entries = nil
		for _, e := range d.GetEntries() {
			q.Entries = append(q.Entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		return err
	})
	return q
}

// offline does something with the stores of the service, and with rules in files or, without paths, with its own.
func (p *program) offline(
	ctx context.Context, s *settings.Settings, paths []string, do func(o *service.Offline) error,
) error {
	o, err := service.OpenOffline(ctx, service.OfflineConfig{
		Config: service.Config{Settings: s, Stderr: io.Discard}, Rules: paths, Stdin: p.Stdin,
	})
	if err != nil {
		return err
	}
	defer o.Close()
	return do(o)
}

// printBuckets prints lines for each bucket, which begin with what was done to it, and the note.
func (p *program) printBuckets(done string, shown *service.Buckets) error {
	var rows [][]string
	for i := range shown.Buckets {
		for _, row := range shown.Buckets[i].Rows() {
			if done != "" {
				row = append([]string{done}, row...)
			}
			rows = append(rows, row)
		}
	}
	if shown.Note != "" {
		rows = append(rows, []string{"note: " + shown.Note})
	}
	return command.PrintTable(p.Stdout, p.Width, rows)
}
