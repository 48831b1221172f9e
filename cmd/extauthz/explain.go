package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
)

func (p *program) explain() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain [RULES...]",
		Short: "Show why a request passes or not",
		Long: `extauthz explain decides a request and shows why. It prints the access rule and the credential, the rules that
match each descriptor or why none does, what is used of the buckets, and the answer.
It charges nothing and writes nothing. The exit code is 0 for every decision.

With RULES (files or directories) no service is needed, and the buckets are empty. API_KEYS_FILE names the API keys.
With --debug it asks a running service on its debug listener.
With neither, it needs the environment of the service, and shows its buckets in Redis.`,
		Example: `  extauthz explain rules --domain shop --descriptor tenant=acme
  extauthz explain rules --method POST --path /v1/orders --header @key.txt
  extauthz explain --debug localhost:6070 --domain shop --descriptor tenant=acme
  extauthz explain rules --request captured.json -o json`,
	}
	request := command.AddRequestFlags(c.Flags())
	captured := c.Flags().String("request", "",
		"`FILE` with a CheckRequest or RateLimitRequest in JSON, - for standard input")
	debug := c.Flags().String("debug", "", "`HOST:PORT` of the debug listener of a running service")
	output := command.OutputFlag(c, "text", "json")
	c.RunE = p.withSettings(func(ctx context.Context, s *settings.Settings, rules []string) error {
		if *debug != "" && len(rules) > 0 {
			return command.Usage("--debug asks a service, which has its own rules: leave out %s", strings.Join(rules, " "))
		}
		text, err := p.requestText(*captured, request)
		if err != nil {
			return err
		}
		e := new(inspect.Explanation)
		if *debug != "" {
			err = askDebug(ctx, *debug, "/explain", text, e)
		} else {
			err = p.offline(ctx, s, rules, func(o *service.Offline) error {
				m, message, err := inspect.FromJSON(text)
				if err == nil {
					e = o.Explain(ctx, m, message)
				}
				return err
			})
		}
		if err != nil {
			return err
		}
		return output.Print(p.Stdout, e, func() error { return p.printExplanation(e) })
	})
	return c
}

// requestText returns the request in JSON: that of a file, or that of the flags.
func (p *program) requestText(path string, flags *command.RequestFlags) ([]byte, error) {
	switch path {
	case "":
		request, err := flags.Read(flags.IsCheck())
		if err != nil {
			return nil, err
		}
		return protojson.Marshal(request)
	case strictyaml.Stdin:
		return io.ReadAll(p.Stdin)
	}
	return os.ReadFile(path)
}

func (p *program) printExplanation(e *inspect.Explanation) error {
	var b strings.Builder
	e.Text(&b)
	if check := new(authv3.CheckResponse); e.Service == "ext_authz" && protojson.Unmarshal(e.Answer, check) == nil {
		b.WriteString(checkText(check))
	}
	if limit := new(rlsv3.RateLimitResponse); e.Service == "ratelimit" && protojson.Unmarshal(e.Answer, limit) == nil {
		for _, h := range limit.GetResponseHeadersToAdd() {
			writeHeader(&b, "", h)
		}
	}
	_, err := io.WriteString(p.Stdout, b.String())
	return err
}

// debugPatience and maxDebugAnswer bound a call of the debug listener and its answer.
const debugPatience, maxDebugAnswer = 10 * time.Second, 64 << 20

// askDebug sends JSON, or a GET without a body, to the debug listener of a service, and reads its answer into v.
func askDebug(ctx context.Context, address, path string, body []byte, v any) error {
	ctx, cancel := context.WithTimeout(ctx, debugPatience)
	defer cancel()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(address, "/")+path, bytes.NewReader(body))
	if err != nil {
		return command.Usage("--debug %q: %w", address, err)
	}
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("%w: want the debug port of a running extauthz (DEBUG_PORT, 6070 by default)", err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxDebugAnswer))
	if err == nil && res.StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%s: want the debug port of a running extauthz (DEBUG_PORT)", res.Status)
	} else if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, cmp.Or(strings.TrimSpace(string(answer)), "no text"))
	}
	if err == nil {
		err = json.Unmarshal(answer, v)
	}
	if err != nil {
		return fmt.Errorf("%s%s: %w", address, path, err)
	}
	return nil
}
