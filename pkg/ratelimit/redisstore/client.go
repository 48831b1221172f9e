package redisstore

import (
	"context"
	"crypto/sha1" // how Redis names a script
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// probeKey is the key of no bucket: nothing is ever stored there.
const probeKey = "rl:probe"

// client calls the script on one Redis.
type client struct {
	redis.UniversalClient
	script *script
}

// script is the script and how often it had to be loaded.
type script struct {
	text, sha string

	mu    sync.Mutex
	loads int
}

func newScript() *script {
	text := bucket.Script()
	sum := sha1.Sum([]byte(text))
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// eval runs the script once for each chunk, in their order and in one round trip, and puts the answers into the chunks.
func (c client) eval(ctx context.Context, chunks []chunk) {
	loads := c.script.generation()
	if len(chunks) == 1 {
		c.run(ctx, "EVALSHA", c.script.sha, &chunks[0])
	} else {
		c.runAll(ctx, chunks)
	}
	for i := range chunks {
		if ch := &chunks[i]; code(ch.err) == "NOSCRIPT" {
			c.again(ctx, loads, ch)
		}
	}
}

// again runs the script for a chunk for which Redis did not know it: Redis forgets scripts when it restarts.
func (c client) again(ctx context.Context, loads int, ch *chunk) {
	if ch.err = c.reload(ctx, loads); ch.err != nil {
		return
	}
	if c.run(ctx, "EVALSHA", c.script.sha, ch); code(ch.err) == "NOSCRIPT" {
		// Someone flushes scripts in a loop. EVAL brings the script along.
		c.run(ctx, "EVAL", c.script.text, ch)
	}
}

func (c client) run(ctx context.Context, command, script string, ch *chunk) {
	cmd, nonce := ch.command(ctx, command, script)
	_ = c.Process(ctx, cmd)
	ch.read(cmd, nonce)
}

func (c client) runAll(ctx context.Context, chunks []chunk) {
	pipe := c.Pipeline()
	cmds, nonces := make([]*redis.Cmd, len(chunks)), make([]string, len(chunks))
	for i := range chunks {
		cmds[i], nonces[i] = chunks[i].command(ctx, "EVALSHA", c.script.sha)
		_ = pipe.Process(ctx, cmds[i]) // sends nothing yet
	}
	_, _ = pipe.Exec(ctx)
	for i := range chunks {
		chunks[i].read(cmds[i], nonces[i])
	}
}

// command returns what runs the script for the chunk, and the nonce that the answer has to bring back.
func (ch *chunk) command(ctx context.Context, command, script string) (cmd *redis.Cmd, nonce string) {
	nonce = strconv.FormatUint(rand.Uint64(), 36)
	words := make([]any, 0, 5+len(ch.keys))
	words = append(words, command, script, len(ch.keys))
	for _, key := range ch.keys {
		words = append(words, key)
	}
	return redis.NewCmd(ctx, append(words, nonce, ch.args)...), nonce
}

// read reads the answer to the command and checks that it is one.
func (ch *chunk) read(cmd *redis.Cmd, nonce string) {
	var reply string
	if reply, ch.err = cmd.Text(); ch.err != nil {
		return
	}
	echo, rest, _ := strings.Cut(reply, " ")
	clock, lines, _ := strings.Cut(rest, "\n")
	switch {
	case echo != nonce:
		ch.err = fmt.Errorf("the answer to another call: %.100q", reply)
	case strings.Count(rest, "\n") != ch.requests:
		ch.err = fmt.Errorf("an answer of the script that does not fit %d requests: %.100q", ch.requests, rest)
	default:
		if ch.clock, ch.err = strconv.ParseInt(clock, 10, 64); ch.err != nil {
			ch.err = fmt.Errorf("no time in an answer of the script: %w", ch.err)
		}
		ch.lines = lines
	}
}

// reload loads the script, unless someone else has since generation.
func (c client) reload(ctx context.Context, generation int) error {
	c.script.mu.Lock()
	defer c.script.mu.Unlock()
	if c.script.loads != generation {
		return nil
	}
	if err := c.load(ctx); err != nil {
		return &notRunError{fmt.Errorf("load the script: %w", err)}
	}
	c.script.loads++
	return nil
}

func (c client) load(ctx context.Context) error { return c.ScriptLoad(ctx, c.script.text).Err() }

func (s *script) generation() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads
}

// link holds the client, and replaces it when Redis was gone: new connections, to where the name leads by then.
type link struct {
	options *redis.UniversalOptions
	script  *script

	mu     sync.RWMutex // held for reading while the client is in use
	client redis.UniversalClient
}

func newLink(options *redis.UniversalOptions) *link {
	return &link{options: options, script: newScript(), client: redis.NewUniversalClient(options)}
}

// use calls f with the client, which stays open meanwhile.
func (l *link) use(f func(client)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	f(client{l.client, l.script})
}

// current is the client, for a caller who may take long and can live with its being closed meanwhile.
func (l *link) current() client {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return client{l.client, l.script}
}

// renew tries a new client and, when Redis answers it and takes writes, uses that from then on.
func (l *link) renew(ctx context.Context) error {
	fresh := redis.NewUniversalClient(l.options)
	if err := writable(ctx, fresh); err != nil {
		_ = fresh.Close()
		return err
	}
	l.mu.Lock()
	old := l.client
	l.client = fresh
	l.mu.Unlock()
	return old.Close()
}

// writable reports whether Redis would decide. A replica answers a ping, but refuses to delete even what is not there; what else
// may be wrong with that is no reason not to ask.
func writable(ctx context.Context, c redis.UniversalClient) error {
	if err := c.Ping(ctx).Err(); err != nil {
		return err
	}
	if err := c.Del(ctx, probeKey).Err(); code(err) == "READONLY" {
		return err
	}
	return nil
}

func (l *link) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client.Close()
}
