module github.com/extauthz/extauthz/test/h2spec

go 1.26.8

replace github.com/extauthz/extauthz => ../..

require (
	github.com/extauthz/extauthz v0.0.0-00010101000000-000000000000
	github.com/summerwind/h2spec v2.2.1+incompatible
)

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
