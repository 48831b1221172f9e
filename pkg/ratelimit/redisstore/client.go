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

// eval runs the script once. Redis forgets scripts when it restarts; NOSCRIPT proves that it did not run.
func (c client) eval(ctx context.Context, keys []string, args []byte) (string, error) {
	loads := c.script.generation()
	reply, err := c.run(ctx, "EVALSHA", c.script.sha, keys, args)
	if code(err) != "NOSCRIPT" {
		return reply, err
	}
	if err := c.reload(ctx, loads); err != nil {
		return "", err
	}
	reply, err = c.run(ctx, "EVALSHA", c.script.sha, keys, args)
	if code(err) != "NOSCRIPT" {
		return reply, err
	}
	// Someone flushes scripts in a loop. EVAL brings the script along.
	return c.run(ctx, "EVAL", c.script.text, keys, args)
}

// run sends the command and checks that the answer is the one to it.
func (c client) run(ctx context.Context, command, script string, keys []string, args []byte) (string, error) {
	nonce := strconv.FormatUint(rand.Uint64(), 36)
	words := make([]any, 0, 5+len(keys))
	words = append(words, command, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	words = append(words, nonce, args)
	cmd := redis.NewCmd(ctx, words...)
	_ = c.Process(ctx, cmd)
	reply, err := cmd.Text()
	if err != nil {
		return "", err
	}
	echo, reply, _ := strings.Cut(reply, " ")
	if echo != nonce {
		return "", fmt.Errorf("the answer to another call: %.100q", reply)
	}
	return reply, nil
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
func (l *link) use(f func(client) error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return f(client{l.client, l.script})
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
