package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Format is the value of --output, one of its words.
type Format struct {
	Word  string
	words []string
}

// OutputFlag adds --output to a command. The first word is the default.
func OutputFlag(c *cobra.Command, words ...string) *Format {
	f := &Format{words[0], words}
	c.PersistentFlags().VarP(f, "output", "o", "format of the result")
	// It cannot fail, because the flag exists.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String implements pflag.Value.
func (f *Format) String() string { return f.Word }

// Set implements pflag.Value.
func (f *Format) Set(word string) error {
	if !slices.Contains(f.words, word) {
		return fmt.Errorf("want %s", strings.Join(f.words, " or "))
	}
	f.Word = word
	return nil
}

// Type implements pflag.Value.
func (f *Format) Type() string { return strings.Join(f.words, "|") }

// Print prints a value as JSON if that is the format, else as text does.
func (f *Format) Print(w io.Writer, v any, text func() error) error {
	if f.Word == "json" {
		return PrintJSON(w, v)
	}
	return text()
}

// PrintJSON prints a value as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

// PrintTable prints rows as a table. On a terminal of a width above 0, the texts of the last column are wrapped between
// words. If the terminal is too narrow for that, they follow below the other cells.
func PrintTable(w io.Writer, width int, rows [][]string) error {
	const leastText = 30 // columns of a terminal that the last cells need beside the others
	var widths []int
	longest := 0
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
		longest = max(longest, utf8.RuneCountInString(row[len(row)-1]))
	}
	indent := 0
	for _, n := range widths {
		indent += n + len("  ")
	}
	below := width > 0 && indent+min(longest, leastText) > width
	if below {
		indent = 4
	}
	var b strings.Builder
	for _, row := range rows {
		line, last := "", len(row)-1
		for i, cell := range row[:last] {
			line += fmt.Sprintf("%-*s  ", widths[i], cell)
		}
		if below {
			wrap(&b, strings.Join(strings.Fields(line), " "), width, indent)
			line = strings.Repeat(" ", indent)
		}
		b.WriteString(line)
		wrap(&b, row[last], width-indent, indent)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes a text and a line break. Lines longer than a width above 0 break between words; the next are indented.
func wrap(b *strings.Builder, text string, width, indent int) {
	if width <= 0 {
		b.WriteString(text + "\n")
		return
	}
	column := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
}

// Watch shows the rows of a table on the screen, and draws them again each second, until the operator presses q or
// Ctrl-C or ctx is done. The screen is then as it was before. color returns the color of a line, as Paint takes it.
func (p *Program) Watch(ctx context.Context, color func(line string) int, rows func(context.Context) [][]string) error {
	ctx, stop := UntilInterrupted(ctx)
	defer stop()
	if in, ok := p.Stdin.(*os.File); ok {
		if before, err := term.MakeRaw(int(in.Fd())); err == nil {
			defer func() { _ = term.Restore(int(in.Fd()), before) }()
			go func() { // ends with the process
				const q, ctrlC = 'q', 3
				for key := make([]byte, 1); key[0] != q && key[0] != ctrlC; {
					if _, err := in.Read(key); err != nil {
						break
					}
				}
				stop()
			}()
		}
	}
	const (
		other, back                = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l" // another screen without a cursor
		home, clearLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
	)
	fmt.Fprint(p.Stdout, other)
	defer fmt.Fprint(p.Stdout, back)
	for tick := time.Tick(time.Second); ; {
		var table strings.Builder
		_ = PrintTable(&table, 0, append([][]string{{"q ends this view."}}, rows(ctx)...)) // a Builder has no errors
		width, height, err := term.GetSize(int(p.Screen.Fd()))
		if err != nil || ctx.Err() != nil {
			return err
		}
		lines := strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
		lines = lines[:min(len(lines), height)]
		for i, line := range lines {
			text := []rune(line)
			lines[i] = p.Paint(string(text[:min(len(text), width)])+clearLine, color(line))
		}
		if _, err := fmt.Fprint(p.Stdout, home+strings.Join(lines, "\r\n")+clearRest); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
	}
}

// Paint returns a text in a foreground color, if the terminal may show colors: 31 is red, 32 green, 0 none.
func (p *Program) Paint(text string, color int) string {
	if color == 0 || !p.Color {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, text)
}
