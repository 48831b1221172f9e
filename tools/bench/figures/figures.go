// Package figures has the results of `make bench`, and the tables of docs/performance.md that show them.
package figures

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
)

// Report is all that was measured last.
type Report struct {
	Series []Series `json:"series"`
}

// Series is what one run has measured.
type Series struct {
	Name string `json:"name"`
	// Machine and Versions say where it ran and what.
	Machine  string  `json:"machine"`
	Versions string  `json:"versions"`
	Load     string  `json:"load"`
	Tables   []Table `json:"tables"`
}

// Table is rows that were measured by turns. Ratios are to the first row.
type Table struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	// Axis names what Value of the rows is, if the table shows growth.
	Axis string `json:"axis,omitempty"`
	Rows []Row  `json:"rows"`
}

// Row is one server under one load. A value of 0 is unknown.
type Row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value,omitempty"`

	PerSecond Spread `json:"per_second"`
	CPU       Spread `json:"cpu"` // µs of the server per request
	// PerSecondRatio and CPURatio are to the first row, medians of the ratios of each round.
	PerSecondRatio float64 `json:"per_second_ratio,omitempty"`
	CPURatio       float64 `json:"cpu_ratio,omitempty"`
	// P50Ratio takes the place of PerSecondRatio where the rate is fixed.
	P50Ratio float64 `json:"p50_ratio,omitempty"`

	P50 float64 `json:"p50,omitempty"` // µs
	P99 float64 `json:"p99,omitempty"`

	RedisCPU Spread  `json:"redis_cpu,omitzero"` // µs of Redis per request
	Scripts  float64 `json:"scripts,omitempty"`  // per request
	// RedisRatio is that of RedisCPU to the row named Raw, and RedisCPURatio that to the first row of a table without it.
	RedisRatio    float64 `json:"redis_ratio,omitempty"`
	RedisCPURatio float64 `json:"redis_cpu_ratio,omitempty"`

	Memory float64 `json:"memory,omitempty"` // bytes of the server
	// Idle is how many bytes of it an idle connection takes.
	Idle float64 `json:"idle,omitempty"`

	// BaseRate and BaseCPU are ratios to the same row of another build.
	BaseRate float64 `json:"base_rate,omitempty"`
	BaseCPU  float64 `json:"base_cpu,omitempty"`
}

// Raw is the name of the row of a minimal script that is called without a service.
const Raw = "minimal script, called directly"

// Spread is the least, the middle and the largest value of several rounds.
type Spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Over returns the spread of some values. Without values it is 0.
func Over(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	values = slices.Sorted(slices.Values(values))
	return Spread{values[0], values[len(values)/2], values[len(values)-1]}
}

// File is the path of the report in the repository.
const File = "tools/bench/figures/performance.json"

//go:embed performance.json
var latest []byte

// Latest returns the report of the repository.
func Latest() (r Report, err error) {
	if err := json.Unmarshal(latest, &r); err != nil {
		return r, fmt.Errorf("%s: %w", File, err)
	}
	return r, nil
}

// Put replaces the series of the same name, or adds it.
func (r *Report) Put(s Series) {
	i := slices.IndexFunc(r.Series, func(old Series) bool { return old.Name == s.Name })
	if i < 0 {
		r.Series = append(r.Series, s)
		return
	}
	r.Series[i] = s
}

// Tables returns what is shown of tables of a series, in the order of these names. Those that were not measured are
// left out.
func (r *Report) Tables(series string, names ...string) (found []Table) {
	for _, name := range names {
		for _, s := range r.Series {
			for _, t := range s.Tables {
				if s.Name == series && t.Name == name {
					found = append(found, t.shown())
				}
			}
		}
	}
	return found
}
