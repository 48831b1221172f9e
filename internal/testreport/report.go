package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json`; `go doc test2json` describes it.
type event struct{ Action, Package, Test, Output string }

// packageRun is what is known of a package whose tests run. The test "" is the package itself.
type packageRun struct {
	tests    []string // in the order in which they began
	output   map[string][]string
	failures []string // the output of the top-level tests that failed
	failed   int
}

// report writes to w what is worth reading of the events in r. Its error is the verdict; there is nothing to add to it.
func report(r io.Reader, w io.Writer, skipsFail bool) error {
	var passed, failed int
	var skipped []string
	packages := map[string]*packageRun{}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 64<<20) // a line is as long as what a test prints in one go
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			printf(w, "%s\n", in.Bytes()) // some tool that go test runs speaks for itself
			continue
		}
		p := packages[e.Package]
		if p == nil {
			p = &packageRun{output: map[string][]string{}}
			packages[e.Package] = p
		}
		switch ofTest := e.Test != ""; {
		case e.Action == "build-output":
			printf(w, "%s", e.Output)
		case e.Action == "output":
			p.keep(e)
		case e.Action == "fail" && ofTest:
			p.failed++
			p.ended(e.Test, true)
		case e.Action == "fail" && e.Package != "":
			p.print(w)
			failed += max(p.failed, 1) // a package also fails when it does not build
		case e.Action == "pass" && ofTest:
			passed++
			delete(p.output, e.Test)
			p.ended(e.Test, false)
		case e.Action == "skip" && ofTest:
			skipped = append(skipped, e.Package+" "+e.Test)
			delete(p.output, e.Test)
			p.ended(e.Test, false)
		case e.Action == "pass", e.Action == "skip":
			p.printVerdict(w)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("read the events: %w", err)
	}
	for _, s := range skipped {
		printf(w, "SKIP\t%s\n", s)
	}
	printf(w, "%d passed, %d failed, %d skipped\n", passed, failed, len(skipped))
	switch {
	case failed > 0:
		return errors.New("tests failed")
	case skipsFail && len(skipped) > 0:
		return errors.New("tests were skipped, and CI=true")
	case passed == 0:
		return errors.New("no test ran")
	}
	return nil
}

func (p *packageRun) keep(e event) {
	if e.Test != "" && !slices.Contains(p.tests, e.Test) {
		p.tests = append(p.tests, e.Test)
	}
	if strings.HasPrefix(e.Output, "=== ") {
		return
	}
	lines := p.output[e.Test]
	if strings.HasPrefix(strings.TrimLeft(e.Output, " "), "--- ") {
		// The heading comes last in the events, and first to who reads.
		p.output[e.Test] = slices.Insert(lines, 0, e.Output)
		return
	}
	p.output[e.Test] = append(lines, e.Output)
}

// ended takes a top-level test out of the list, with its subtests, and keeps their output if it failed. With -count a test runs
// again under the same name, and a later pass must not remove the output of an earlier failure.
func (p *packageRun) ended(test string, failed bool) {
	if strings.Contains(test, "/") {
		return // it ends with its parent, under whose heading it is printed
	}
	p.tests = slices.DeleteFunc(p.tests, func(name string) bool {
		if name != test && !strings.HasPrefix(name, test+"/") {
			return false
		}
		if failed {
			p.failures = append(p.failures, p.output[name]...)
		}
		delete(p.output, name)
		return true
	})
}

// print writes the output of the tests that failed or did not end, and then that of the package itself.
func (p *packageRun) print(w io.Writer) {
	for _, line := range p.failures {
		printf(w, "%s", line)
	}
	for _, test := range append(p.tests, "") {
		for _, line := range p.output[test] {
			printf(w, "%s", line)
		}
		delete(p.output, test)
	}
}

// printVerdict writes the last line of a package: "ok", its name, and the time it took.
func (p *packageRun) printVerdict(w io.Writer) {
	if lines := p.output[""]; len(lines) > 0 {
		printf(w, "%s", lines[len(lines)-1])
	}
}

// printf ignores errors: when the reader of a report is gone, there is nobody to tell.
func printf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
