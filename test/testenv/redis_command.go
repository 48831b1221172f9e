package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Do sends one command to the server and returns its reply as text: the elements of an array are separated by spaces.
func (r *RedisServer) Do(words ...string) (string, error) {
	c, err := net.DialTimeout("tcp", r.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(c, b.String()); err != nil {
		return "", err
	}
	reply, err := readReply(bufio.NewReader(c))
	if err != nil {
		return "", fmt.Errorf("%s at %s: %w", strings.Join(words, " "), r.Addr, err)
	}
	return reply, nil
}

// must is Do for commands that cannot fail.
func (r *RedisServer) must(words ...string) string {
	r.t.Helper()
	reply, err := r.Do(words...)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// await waits until the reply to a command contains a text. what names that in the message of a failing test.
func (r *RedisServer) await(what, want string, words ...string) {
	r.t.Helper()
	Eventually(r.t, func() error {
		reply, err := r.Do(words...)
		if err == nil && !strings.Contains(reply, want) {
			err = fmt.Errorf("%s: %s", r.Addr, reply)
		}
		return err
	}, what)
}

// errReply means that the server has refused a command.
var errReply = errors.New("the reply")

// readReply reads a reply of the protocol RESP2.
func readReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, text := line[0], strings.TrimSpace(line[1:])
	switch kind {
	case '-':
		return "", fmt.Errorf("%w %s", errReply, text)
	case '$':
		n, err := strconv.Atoi(text)
		if n < 0 || err != nil {
			return "", err
		}
		bulk := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(r, bulk)
		return string(bulk[:n]), err
	case '*':
		n, err := strconv.Atoi(text)
		var elements []string
		for range n {
			element, failed := readReply(r)
			if failed != nil {
				return "", failed
			}
			elements = append(elements, element)
		}
		return strings.Join(elements, " "), err
	}
	return text, nil
}
