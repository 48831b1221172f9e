package rulefile

// checkEnd reports an `end` that is not the last key or not true, and with Config.RequireEnd a file without one.
func checkEnd(r *report, root rootKeys, cfg Config) {
	end := root.end
	if end.key == (place{}) {
		if cfg.RequireEnd {
			r.fail(r.lastLine(), "the file does not end with `end: true`",
				"RULES_REQUIRE_END=true refuses such a file: it was cut off, or it is still being written",
				"if it is complete, add the line `end: true` at the top level, as the last key")
		}
		return
	}
	if !end.value && (end.set || !end.mentioned) {
		r.fail(end.key, "`end` can only be `true`", "write `end: true` as the last key of the file, or delete it")
	}
	for _, other := range []place{root.domain.key, root.descriptors.key, root.authz.key} {
		if other.line > end.key.line || other.line == end.key.line && other.column > end.key.column {
			r.fail(end.key, "`end` is not the last key of the file", "a key follows at "+r.position(other)+": move `end: true` behind it")
			return
		}
	}
}

// lastLine is the place of the last line that has text.
func (r *report) lastLine() place {
	for i := len(r.lines); i > 0; i-- {
		if r.lines[i-1] != "" {
			return place{line: i, column: 1}
		}
	}
	return place{line: 1, column: 1}
}
