package h2unary

import "strings"

// staticText is the static table (RFC 7541, Appendix A). Each line has a name and a value, from index 1 on.
const staticText = `:authority
:method GET
:method POST
:path /
:path /index.html
:scheme http
:scheme https
:status 200
:status 204
:status 206
:status 304
:status 400
:status 404
:status 500
accept-charset
accept-encoding gzip, deflate
accept-language
accept-ranges
accept
access-control-allow-origin
age
allow
authorization
cache-control
content-disposition
content-encoding
content-language
content-length
content-location
content-range
content-type
cookie
date
etag
expect
expires
from
host
if-match
if-modified-since
if-none-match
if-range
if-unmodified-since
last-modified
link
location
max-forwards
proxy-authenticate
proxy-authorization
range
referer
refresh
retry-after
server
set-cookie
strict-transport-security
transfer-encoding
user-agent
vary
via
www-authenticate`

// staticTable is staticText as fields. Index 0 is not used.
var staticTable = readStaticTable()

func readStaticTable() []field {
	table := make([]field, 1, staticFields+1)
	for line := range strings.SplitSeq(staticText, "\n") {
		name, value, _ := strings.Cut(line, " ")
		table = append(table, newField([]byte(name), []byte(value)))
	}
	return table
}

// staticFields is the number of fields of the static table. The first index of the dynamic table follows.
const staticFields = 61
