// Package replay sends the same requests to two rate limit services and compares their answers: see [Compare]. The
// requests are recorded ones ([Read]) or are made from rules ([Generate]). A difference that docs/compatibility.md
// lists has the name of its row there.
package replay
