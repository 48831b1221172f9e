package command

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

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
