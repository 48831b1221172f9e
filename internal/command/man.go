package command

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func man(program string) *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages into a directory",
		Hidden: true, // for packagers
		Args:   Wants(cobra.ExactArgs(1), "one directory, for example: "+program+" man /usr/share/man/man1"),
		RunE: func(c *cobra.Command, args []string) error {
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: program, Manual: program}, args[0])
		},
	}
}
