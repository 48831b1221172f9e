package main

import (
	"strings"
	"testing"
)

// The events of a test that passes, fails or is skipped, in a package of its own.
const (
	passing = `{"Action":"start","Package":"p/good"}
{"Action":"output","Package":"p/good","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p/good","Test":"TestA","Output":"    a_test.go:4: noise\n"}
{"Action":"pass","Package":"p/good","Test":"TestA"}
{"Action":"output","Package":"p/good","Output":"PASS\n"}
{"Action":"output","Package":"p/good","Output":"ok  \tp/good\t0.1s\n"}
{"Action":"pass","Package":"p/good"}
`
	failing = `{"Action":"output","Package":"p/bad","Output":"-test.shuffle 7\n"}
{"Action":"output","Package":"p/bad","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"p/bad","Test":"TestB","Output":"    b_test.go:4: got 1, want 2\n"}
{"Action":"output","Package":"p/bad","Test":"TestB","Output":"--- FAIL: TestB (0.00s)\n"}
{"Action":"fail","Package":"p/bad","Test":"TestB"}
{"Action":"output","Package":"p/bad","Output":"FAIL\tp/bad\t0.1s\n"}
{"Action":"fail","Package":"p/bad"}
`
	repeated = `{"Action":"output","Package":"p/again","Test":"TestE","Output":"=== RUN   TestE\n"}
{"Action":"output","Package":"p/again","Test":"TestE/sub","Output":"    e_test.go:4: got 1, want 2\n"}
{"Action":"output","Package":"p/again","Test":"TestE","Output":"--- FAIL: TestE (0.00s)\n"}
{"Action":"output","Package":"p/again","Test":"TestE/sub","Output":"    --- FAIL: TestE/sub (0.00s)\n"}
{"Action":"fail","Package":"p/again","Test":"TestE/sub"}
{"Action":"fail","Package":"p/again","Test":"TestE"}
{"Action":"output","Package":"p/again","Test":"TestE","Output":"=== RUN   TestE\n"}
{"Action":"output","Package":"p/again","Test":"TestE/sub","Output":"    e_test.go:4: noise\n"}
{"Action":"pass","Package":"p/again","Test":"TestE/sub"}
{"Action":"pass","Package":"p/again","Test":"TestE"}
{"Action":"output","Package":"p/again","Output":"FAIL\tp/again\t0.1s\n"}
{"Action":"fail","Package":"p/again"}
`
	crashing = `{"Action":"output","Package":"p/crash","Test":"TestC","Output":"panic: boom\n"}
{"Action":"output","Package":"p/crash","Output":"FAIL\tp/crash\t0.1s\n"}
{"Action":"fail","Package":"p/crash"}
`
	unbuilt = `{"ImportPath":"p/no [p/no.test]","Action":"build-output","Output":"no/a_test.go:3: undefined: x\n"}
{"ImportPath":"p/no [p/no.test]","Action":"build-fail"}
{"Action":"output","Package":"p/no","Output":"FAIL\tp/no [build failed]\n"}
{"Action":"fail","Package":"p/no"}
`
	skipping = `{"Action":"output","Package":"p/skip","Test":"TestD","Output":"    d_test.go:4: not today\n"}
{"Action":"skip","Package":"p/skip","Test":"TestD"}
{"Action":"output","Package":"p/skip","Output":"ok  \tp/skip\t0.1s\n"}
{"Action":"pass","Package":"p/skip"}
`
	testless = `{"Action":"output","Package":"p/none","Output":"?   \tp/none\t[no test files]\n"}
{"Action":"skip","Package":"p/none"}
`
)

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, events string
		ci           bool
		want, err    string
	}{
		{name: "a pass is one line a package", events: passing + testless,
			want: "ok  \tp/good\t0.1s\n?   \tp/none\t[no test files]\n1 passed, 0 failed, 0 skipped\n"},
		{name: "a failure has its heading first", events: passing + failing, err: "tests failed",
			want: "ok  \tp/good\t0.1s\n--- FAIL: TestB (0.00s)\n    b_test.go:4: got 1, want 2\n-test.shuffle 7\nFAIL\tp/bad\t0.1s\n" +
				"1 passed, 1 failed, 0 skipped\n"},
		{name: "a failure stays when the test passes the next time", events: repeated, err: "tests failed",
			want: "--- FAIL: TestE (0.00s)\n    --- FAIL: TestE/sub (0.00s)\n    e_test.go:4: got 1, want 2\nFAIL\tp/again\t0.1s\n" +
				"2 passed, 2 failed, 0 skipped\n"},
		{name: "a crash is a failure", events: crashing, err: "tests failed",
			want: "panic: boom\nFAIL\tp/crash\t0.1s\n0 passed, 1 failed, 0 skipped\n"},
		{name: "what does not build is a failure", events: passing + unbuilt, err: "tests failed",
			want: "ok  \tp/good\t0.1s\nno/a_test.go:3: undefined: x\nFAIL\tp/no [build failed]\n1 passed, 1 failed, 0 skipped\n"},
		{name: "a skipped test is told", events: passing + skipping,
			want: "ok  \tp/good\t0.1s\nok  \tp/skip\t0.1s\nSKIP\tp/skip TestD\n1 passed, 0 failed, 1 skipped\n"},
		{name: "a skipped test fails in CI", events: passing + skipping, ci: true, err: "tests were skipped, and CI=true",
			want: "ok  \tp/good\t0.1s\nok  \tp/skip\t0.1s\nSKIP\tp/skip TestD\n1 passed, 0 failed, 1 skipped\n"},
		{name: "no test is no success", events: testless, err: "no test ran",
			want: "?   \tp/none\t[no test files]\n0 passed, 0 failed, 0 skipped\n"},
		{name: "what is no event is passed on", events: "go: downloading x\n" + passing,
			want: "go: downloading x\nok  \tp/good\t0.1s\n1 passed, 0 failed, 0 skipped\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			var got string
			if err := report(strings.NewReader(c.events), &out, c.ci); err != nil {
				got = err.Error()
			}
			if out.String() != c.want || got != c.err {
				t.Errorf("got error %q and\n%s\nwant error %q and\n%s", got, out.String(), c.err, c.want)
			}
		})
	}
}
