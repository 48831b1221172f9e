package compatibility

// Row is the first column of a row of a table in docs.
type Row string

// The rows of docs/reference/compatibility.md that commands refer to.
const (
	Algorithm    Row = "1. a rule without an algorithm"
	Denied       Row = "2. a denied request"
	Peek         Row = "3. a peek (`hits_addend: 0`) if nothing is left"
	Wildcards    Row = "4. several wildcards match"
	RequestLimit Row = "the count of a limit in the request"
	Undecided    Row = "5. the store cannot decide"
	Remaining    Row = "`limit_remaining` on a denial"
	Reset        Row = "`duration_until_reset` of a denied descriptor"
	Headers      Row = "headers and body of an answer"
	DebugHost    Row = "`DEBUG_HOST`"
	RedisDelay   Row = "`REDIS_TIMEOUT`, `REDIS_PERSECOND_TIMEOUT`"
)

// The rows of docs/migration/from-spring-cloud-gateway.md that commands refer to.
const (
	SpringSeconds     Row = "tokens come back at each full second"
	SpringNoCapacity  Row = "`burstCapacity: 0`"
	SpringFastRate    Row = "`replenishRate` of more than twice `burstCapacity`"
	SpringStatus      Row = "`status-code`"
	SpringEmptyStatus Row = "`empty-key-status-code`"
	SpringEmptyPasses Row = "`deny-empty-key: false`"
	SpringNoHeaders   Row = "`include-headers`"
	SpringRenamed     Row = "names of headers (`remaining-header`, ...)"
	SpringDown        Row = "Redis is unreachable: everything passes"
)

// Page is a page with such rows.
type Page struct {
	Path string
	Rows []Row
}

// Pages returns all pages.
func Pages() []Page {
	return []Page{
		{"docs/reference/compatibility.md", []Row{
			Algorithm, Denied, Peek, Wildcards, RequestLimit, Undecided, Remaining, Reset, Headers, DebugHost, RedisDelay,
		}},
		{"docs/migration/from-spring-cloud-gateway.md", []Row{
			SpringSeconds, SpringNoCapacity, SpringFastRate, SpringStatus, SpringEmptyStatus, SpringEmptyPasses, SpringNoHeaders,
			SpringRenamed, SpringDown,
		}},
	}
}
