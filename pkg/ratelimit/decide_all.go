package ratelimit

import (
	"context"

	"github.com/extauthz/extauthz/internal/texts"
)

// waiting is the memory of a call of DecideAll.
type waiting struct {
	plans    []Plan
	finished []bool
	rounds   Rounds
	wait     *wait
}

// DecideAll decides queries, each by itself, with one call of the store, and waits for the results. The result of
// queries[i] is in results[i], whose slices it uses again. ctx bounds the call. It is for programs that embed the
// limiter; the service drives Plan, Start and Finish itself (internal/flow).
func (l *Limiter) DecideAll(ctx context.Context, queries []Query, results []Result) {
	w := l.waiting.Get().(*waiting)
	for i := range queries {
		w.plans, w.finished = extend(w.plans), append(w.finished, false)
		l.Plan(&queries[i], &w.plans[i], &w.rounds)
	}
	for more := true; more; more = w.rounds.Next() {
		if w.rounds.Len() > 0 {
			l.Start(ctx, &w.rounds, w.wait.done)
			<-w.wait.ended
		}
		for i := range w.plans {
			w.finished[i] = w.finished[i] || l.Finish(&w.plans[i], &w.rounds, &results[i])
		}
	}
	for i := range w.plans {
		w.plans[i].Reset()
	}
	w.plans, w.finished = w.plans[:0], texts.Clear(w.finished)
	w.rounds.Reset()
	l.waiting.Put(w)
}
