package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/tools/migrate"
)

func (p *program) migrate() *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "migrate",
		Short: "Convert limits and settings of other services",
		Long: "extauthz-tools migrate converts limits and settings of other rate limiters. It changes no file of theirs.\n" +
			"docs/migration has the whole way, step by step, for each of them.",
	}, p.migrateRatelimit(), p.migrateLimitador(), p.migrateSpring())
}

// conversion are the flags of a subcommand that writes rule files.
type conversion struct {
	write  *string
	output *command.Format
}

func conversionFlags(c *cobra.Command) conversion {
	return conversion{
		write: c.Flags().StringP("write", "w", "", "write the rule files into this `DIR`, which must not have files of "+
			"the same name;\ndefault: print them"),
		output: command.OutputFlag(c, "text", "json"),
	}
}

// readSource reads the file that is converted, or standard input.
func (p *program) readSource(path string, kind *strictyaml.Kind) (strictyaml.File, error) {
	source, problem := strictyaml.ReadFile(path, p.Stdin, kind)
	if problem != nil {
		return source, command.Usage("%s: %s", problem.File, problem.Message)
	}
	return source, nil
}

// convertedFile is a rule file as -o json prints it.
type convertedFile struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// conversionResult is the result of a conversion as -o json prints it.
type conversionResult struct {
	OK    bool            `json:"ok"` // everything was converted
	Files []convertedFile `json:"files"`
	*migrate.Converted
}

// finish writes or prints what was converted. It returns command.ErrReported if a part could not be converted.
func (p *program) finish(c *migrate.Converted, flags conversion) error {
	ok := !c.Problems.HasErrors()
	if *flags.write != "" {
		if err := writeFiles(*flags.write, c.Files); err != nil {
			return err
		}
	}
	if flags.output.Word == "json" {
		result := conversionResult{OK: ok, Files: []convertedFile{}, Converted: c}
		c.Problems = append(strictyaml.Problems{}, c.Problems...) // an empty list, not null
		for _, f := range c.Files {
			result.Files = append(result.Files, convertedFile{f.Name, string(f.Content)})
		}
		return errors.Join(command.PrintJSON(p.Stdout, result), command.Reported(ok))
	}
	for i, f := range c.Files {
		switch {
		case *flags.write != "":
			fmt.Fprintf(p.Stdout, "wrote %s\n", filepath.Join(*flags.write, f.Name))
			continue
		case i > 0:
			fmt.Fprintln(p.Stdout)
		}
		if len(c.Files) > 1 {
			fmt.Fprintf(p.Stdout, "# %s\n", f.Name)
		}
		fmt.Fprintf(p.Stdout, "%s", f.Content)
	}
	printAdvice(p.Stderr, c)
	return command.Reported(ok)
}

// printAdvice prints what goes with rule files: to stderr, so that stdout can be redirected into a file.
func printAdvice(w io.Writer, c *migrate.Converted) {
	if len(c.Problems) > 0 {
		fmt.Fprintln(w, c.Problems.Error())
	}
	if len(c.Settings) > 0 {
		fmt.Fprintf(w, "\nSettings:\n  %s\n", strings.Join(c.Settings, "\n  "))
	}
	if c.Routes != "" {
		fmt.Fprintf(w, "\nRoutes of Envoy:\n%s", c.Routes)
	}
	for _, note := range c.Notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
}

// writeFiles writes files into a directory, which it creates. It overwrites none, and writes none if one exists.
func writeFiles(dir string, files []strictyaml.File) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.Name)); err == nil {
			return command.Usage("%s exists already: give another directory to --write, or delete it",
				filepath.Join(dir, f.Name))
		}
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
