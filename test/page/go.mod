module github.com/extauthz/extauthz/test/page

go 1.26.8

replace github.com/extauthz/extauthz => ../..

require github.com/extauthz/extauthz v0.0.0-00010101000000-000000000000

require (
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
