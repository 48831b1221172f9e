package compatibility

// Row is the first column of a row of docs/compatibility.md.
type Row string

// The rows that commands refer to.
const (
	Algorithm  Row = "1. a rule without an algorithm"
	Denied     Row = "2. a denied request"
	Peek       Row = "3. a peek (`hits_addend: 0`) if nothing is left"
	Wildcards  Row = "4. several wildcards match"
	Override   Row = "the count of a limit in the request"
	Undecided  Row = "5. the store cannot decide"
	Remaining  Row = "`limit_remaining` on a denial"
	Reset      Row = "`duration_until_reset` of a denied descriptor"
	DebugHost  Row = "`DEBUG_HOST`"
	RedisDelay Row = "`REDIS_TIMEOUT`, `REDIS_PERSECOND_TIMEOUT`"
)

// Rows returns all of them.
func Rows() []Row {
	return []Row{Algorithm, Denied, Peek, Wildcards, Override, Undecided, Remaining, Reset, DebugHost, RedisDelay}
}
