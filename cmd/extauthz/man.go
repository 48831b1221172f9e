package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (p *program) man() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages into a directory",
		Hidden: true, // it is for those who package extauthz
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &usageError{errors.New("want one directory, for example: extauthz man /usr/share/man/man1")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: "extauthz", Manual: "extauthz"}, args[0])
		},
	}
}
