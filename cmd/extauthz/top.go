package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

func (p *program) bucketsTop() *cobra.Command {
	return showReplicas[inspect.Top](p, "/top", &cobra.Command{
		Use:   "top",
		Short: "Show the keys that are hot, near their limit or over it",
		Long: "extauthz buckets top shows the keys that running services have seen. Those over their limit come first,\n" +
			"with the first denial of the present run. Those near it (NEAR_LIMIT_RATIO) and the hottest follow.\n" +
			"On a terminal it draws them again each second; q ends it.\n" +
			"Each service shows at most 4,096 keys, and their values only with LOG_CLIENT_VALUES=true.",
		Example: "  extauthz buckets top\n" +
			"  extauthz buckets top --debug 10.0.0.1:6070 --debug 10.0.0.2:6070 -o json",
		Args: command.NoArguments(""),
	})
}

func (p *program) shadow() *cobra.Command {
	return showReplicas[inspect.Shadow](p, "/shadow", &cobra.Command{
		Use:   "shadow",
		Short: "Show what limits in shadow would deny",
		Long: "extauthz shadow shows how many requests each limit in shadow would have denied since the services started.\n" +
			"It also shows for how many keys it would deny requests now, and since when.\n" +
			"On a terminal it draws them again each second; q ends it.\n" +
			"It shows keys only if the services have LOG_CLIENT_VALUES=true.",
		Example: "  extauthz shadow\n" +
			"  extauthz shadow --debug 10.0.0.1:6070 --debug 10.0.0.2:6070 -o json",
		Args: command.NoArguments(""),
	})
}

// view is an answer of a replica. It can be merged with others and printed.
type view[T any] interface {
	*T
	Merge(other *T, replica string)
	Rows() [][]string
}

// showReplicas makes a command show what replicas answer at a path of their debug ports.
func showReplicas[T any, V view[T]](p *program, path string, c *cobra.Command) *cobra.Command {
	replicas := c.Flags().StringArray("debug", nil, "`HOST:PORT` of the debug port of a service; may be repeated; "+
		"default: localhost:6070")
	output := command.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *replicas == nil {
			*replicas = []string{"localhost:6070"}
		}
		all, warnings, err := askReplicas[T, V](c.Context(), *replicas, path)
		switch {
		case err != nil:
			return err
		case p.Screen != nil && output.Word == "text":
			return p.Watch(c.Context(), color, func(ctx context.Context) [][]string {
				if all, warnings, err = askReplicas[T, V](ctx, *replicas, path); err != nil {
					return warnings
				}
				return append(warnings, all.Rows()...)
			})
		}
		for _, warning := range warnings {
			fmt.Fprintln(p.Stderr, warning[0])
		}
		return output.Print(p.Stdout, all, func() error { return command.PrintTable(p.Stdout, p.Width, all.Rows()) })
	}
	return c
}

// color returns the color of a line of the screen: red for a key over its limit, yellow for one near it.
func color(line string) int {
	switch state, _, _ := strings.Cut(line, " "); state {
	case ratelimit.HotOver:
		return 31
	case ratelimit.HotNear:
		return 33
	}
	return 0
}

// askReplicas merges the answers of replicas. A replica without an answer is a warning, and an error if all are.
func askReplicas[T any, V view[T]](ctx context.Context, replicas []string, path string) (all V, warnings [][]string,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // as often as the screen is drawn
	defer cancel()
	answers, errs := make([]T, len(replicas)), make([]error, len(replicas))
	var group sync.WaitGroup
	for i, replica := range replicas {
		group.Go(func() { errs[i] = askDebug(ctx, replica, path, nil, &answers[i]) })
	}
	group.Wait()
	all = new(T)
	for i, replica := range replicas {
		if errs[i] != nil {
			warnings = append(warnings, []string{"warning: " + errs[i].Error()})
			continue
		}
		if len(replicas) == 1 {
			replica = ""
		}
		all.Merge(&answers[i], replica)
	}
	if len(warnings) == len(replicas) {
		err = errors.Join(errs...)
	}
	return all, warnings, err
}
