package loadgen

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run carries out a plan. It first sends one request alone; if that has no answer, the error names the reason. When ctx
// is done, Run returns at once what it has found so far. It then counts no request that was in flight.
func Run(ctx context.Context, p Plan) (*Result, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	first := p
	first.Connections, first.InFlight, first.Rate, first.Count, first.Progress = 1, 1, 0, 1, nil
	first.Duration = MostDuration // its timeout ends it
	warning := ""                 // of the answer to it
	if warns := p.Message.warns; warns != nil {
		first.Message.allows = func(answer []byte) (bool, error) {
			warning = warns(answer)
			return p.Message.allows(answer)
		}
	}
	m := newMeasurement(first)
	if err := m.open(ctx); err != nil {
		return nil, err
	}
	m.run(ctx)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s had not answered the first request: %w", p.Address, context.Cause(ctx))
	}
	if r := m.result(); len(r.Failures) > 0 {
		f := r.Failures[0]
		return nil, fmt.Errorf("%s has no answer to the first request: %s: %.300q", p.Address, f.Status, f.First)
	}
	m = newMeasurement(p)
	if err := m.open(ctx); err != nil {
		return nil, err
	}
	// Connections are open: the costs are those of requests, without handshakes.
	server := findListener(p.Address)
	used, _ := server.cpu() // cost finds the same error
	var redis *RedisMeter
	if p.Redis != "" {
		var err error
		if redis, err = NewRedisMeter(ctx, p.Redis, p.Timeout); err != nil {
			m.close()
			return nil, err
		}
		defer redis.Close()
	}
	m.run(ctx)
	r := m.result()
	r.Interrupted, r.Warning = ctx.Err() != nil, warning
	if n := r.Total(); n > 0 {
		r.Server = server.cost(used, n)
		if redis != nil {
			r.Redis, _ = redis.Cost(context.WithoutCancel(ctx), n) // nil if Redis has gone
		}
	}
	return r, nil
}

// measurement is a plan that is being carried out.
type measurement struct {
	plan  Plan
	lanes []*lane
	tally *tally
	first []*session // of each lane
	began time.Time
	ended atomic.Int64 // time.Duration; no request begins afterwards
}

func (m *measurement) clock() time.Duration { return time.Since(m.began) }

func (m *measurement) end() time.Duration { return time.Duration(m.ended.Load()) }

func newMeasurement(p Plan) *measurement {
	m := &measurement{plan: p, tally: newTally(), began: time.Now()}
	for i := range p.Connections {
		l := &lane{
			m: m, index: i, most: p.share(p.InFlight, i), seed: rand.Uint64(), budget: math.MaxInt64,
			message: bytes.Clone(p.Message.bytes), places: p.Message.places,
		}
		if p.Count > 0 {
			l.budget = int64(p.share(p.Count, i))
		}
		l.draw = p.Keys.draw(l.seed)
		m.lanes = append(m.lanes, l)
	}
	return m
}

// open opens the first connection of each lane. If one cannot be opened, there is nothing to measure.
func (m *measurement) open(ctx context.Context) error {
	m.first = make([]*session, len(m.lanes))
	var all errgroup.Group
	all.SetLimit(32) // handshakes at a time
	for i, l := range m.lanes {
		all.Go(func() (err error) {
			m.first[i], err = l.open(ctx)
			return err
		})
	}
	err := all.Wait()
	if err != nil {
		m.close()
	}
	return err
}

// close closes the connections of a measurement that was not started.
func (m *measurement) close() {
	for _, s := range m.first {
		if s != nil {
			_ = s.conn.Close() // no request is in flight
		}
	}
}

// run carries out the plan. It returns when all requests are answered or given up, or at once when ctx is done.
func (m *measurement) run(ctx context.Context) {
	lasting, halt := context.WithCancel(context.WithoutCancel(ctx))
	m.began = time.Now()
	m.ended.Store(int64(m.plan.Duration))
	var readers sync.WaitGroup
	for i, l := range m.lanes {
		readers.Go(func() { l.keep(lasting, m.first[i]) })
	}
	if m.plan.Rate > 0 {
		readers.Go(func() { m.pace(lasting) })
	}
	// Many lanes are looked at less often, so that this takes no CPU from them.
	tick := time.NewTicker(10*time.Millisecond + time.Duration(len(m.lanes))*10*time.Microsecond)
	defer tick.Stop()
	report := m.reporter()
	for busy := true; busy; {
		select {
		case <-ctx.Done():
			m.ended.Store(min(m.ended.Load(), int64(m.clock())))
			busy = false
		case <-tick.C:
			busy = false
			for _, l := range m.lanes {
				busy = !l.tend() || busy
			}
			report()
		}
	}
	halt()
	for _, l := range m.lanes {
		l.stop()
	}
	readers.Wait()
}

// reporter returns a function that calls Progress once a second.
func (m *measurement) reporter() func() {
	var last Progress
	return func() {
		now := m.clock()
		if m.plan.Progress == nil || now < last.Passed+time.Second {
			return
		}
		p := Progress{Passed: now}
		p.Answers, p.Errors = m.tally.counts()
		p.AnswersPerSecond = float64(p.Answers-last.Answers) / (now - last.Passed).Seconds()
		m.plan.Progress(p)
		last = p
	}
}

// awake is how long pace stays awake before a request is due. An alarm is some 25 µs late, which would count as
// latency. At high rates, pace stays awake for a fifth of the time.
const awake = 40 * time.Microsecond

// pace wakes the lanes of an open loop when requests are due.
func (m *measurement) pace(ctx context.Context) {
	wait, stop := newAlarm()
	defer stop()
	lanes := int64(len(m.lanes))
	interval := float64(time.Second) / float64(m.plan.Rate)
	early := min(awake, time.Duration(interval/5))
	for next := int64(0); ctx.Err() == nil; {
		due := time.Duration(float64(next) * interval)
		if due >= m.end() {
			return
		}
		wait(due - early - m.clock())
		now := m.clock()
		for now < due && now >= due-early {
			now = m.clock()
		}
		begin := next
		for time.Duration(float64(next)*interval) <= now {
			next++
		}
		for n := begin; n < min(next, begin+lanes); n++ {
			m.lanes[n%lanes].poke()
		}
	}
}
