package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUntrustedHopsAreSaidOnceAMinute: the first request warns, those within a minute do not.
func TestUntrustedHopsAreSaidOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		a := &authorization{log: slog.New(slog.NewTextHandler(&out, nil))}
		for _, c := range []struct {
			wait time.Duration
			said int
		}{{0, 1}, {0, 1}, {time.Minute - time.Nanosecond, 1}, {time.Nanosecond, 2}, {time.Second, 2}, {time.Hour, 3}} {
			time.Sleep(c.wait)
			a.warnOfHops("shop")
			if got := strings.Count(out.String(), "level=WARN"); got != c.said {
				t.Errorf("%v later: said %d times, want %d\n%s", c.wait, got, c.said, out.String())
			}
		}
		for _, want := range []string{"use_remote_address: true", "domain=shop"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in %s", want, out.String())
			}
		}
	})
}
