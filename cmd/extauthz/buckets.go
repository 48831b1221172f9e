package main

import (
	"context"
	"fmt"
	"strconv"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
)

// buckets returns the command of the buckets in Redis.
func (p *program) buckets() *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "buckets",
		Short: "Show and reset buckets",
		Long: "extauthz buckets top shows the hottest buckets of running services.\n" +
			"extauthz buckets reset shows and resets buckets in Redis. It finds them by the rules and settings of the service.",
		Example: "  extauthz buckets top\n" +
			"  extauthz buckets reset --domain shop --descriptor api_key=4711 --dry-run",
	}, p.bucketsReset(), p.bucketsTop())
}

func (p *program) bucketsReset() *cobra.Command {
	c := &cobra.Command{
		Use:   "reset",
		Short: "Give clients the full limit again",
		Long: "extauthz buckets reset empties the buckets of a descriptor: all limits of the rule that matches it.\n" +
			"If the descriptor names an API key or its owner, and the key has a limit of its own, that limit is shown.\n" +
			"It needs the environment of the service: its rules, REDIS_URL, CACHE_KEY_PREFIX, COMPATIBILITY and API keys.\n" +
			"Replicas know it within a second. Do not delete keys in Redis instead: replicas restore what they remember.",
		Example: "  extauthz buckets reset --domain shop --descriptor api_key=4711\n" +
			"  extauthz buckets reset --domain shop --descriptor action=buy,user=ann --dry-run -o json",
		Args: command.NoArguments(""),
	}
	output := command.OutputFlag(c, "text", "json")
	domain := c.Flags().String("domain", "", "`DOMAIN` of the rules")
	var descriptor *ratelimitv3.RateLimitDescriptor
	c.Flags().Func("descriptor", "the descriptor, as `KEY=VALUE,...`", func(text string) (err error) {
		descriptor, err = command.Descriptor(text)
		return err
	})
	dry := c.Flags().Bool("dry-run", false, "show the buckets and change nothing")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case *domain == "":
			return command.Usage("missing --domain DOMAIN")
		case descriptor == nil:
			return command.Usage("missing --descriptor KEY=VALUE,...")
		}
		return nil
	}
	c.RunE = p.withSettings(func(ctx context.Context, s *settings.Settings, _ []string) error {
		found, err := service.ResetBuckets(ctx, s, *domain, descriptor, service.Reset(!*dry))
		if err != nil {
			return err
		}
		return output.Print(p.Stdout, found, func() error { return p.printBuckets(found, *dry) })
	})
	return c
}

// printBuckets prints one line for each bucket.
func (p *program) printBuckets(found []service.Bucket, dry bool) error {
	var rows [][]string
	done := "reset"
	if dry {
		done = "not reset"
	}
	for _, b := range found {
		kind := ""
		if b.Refused {
			kind = " (refused requests)"
		}
		used := fmt.Sprintf("%d of %d used", b.Used, b.Capacity)
		rows = append(rows, []string{done, b.Limit + kind, used, strconv.Quote(b.Key)})
	}
	return command.PrintTable(p.Stdout, p.Width, rows)
}
