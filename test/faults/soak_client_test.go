package faults

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

const soakRules = "domain: soak\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}]\n"

// errLeft means that a client has left in the middle of its calls.
var errLeft = errors.New("the client has left")

// soakClient is a connection whose frames are counted.
type soakClient struct {
	*soak
	*http2.Framer
	conn    net.Conn
	random  *rand.Rand
	block   bytes.Buffer
	hpack   *hpack.Encoder
	out     bytes.Buffer
	stream  uint32 // of the last request
	open    map[uint32]*soakCall
	waiting int  // calls that must be answered
	leaving bool // the service has sent a GOAWAY
}

// soakCall is a call that is not answered.
type soakCall struct {
	descriptors int // as many statuses must its answer have
	reset       bool
	message     []byte
}

func (s *soak) connect(seed uint64) (*soakClient, error) {
	conn, err := new(net.Dialer).DialContext(s.Context(), "tcp", s.address)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = conn.Close() })
	c := &soakClient{soak: s, conn: conn, open: make(map[uint32]*soakCall)}
	c.random = rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // a repeatable load
	c.Framer = http2.NewFramer(&c.out, conn)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.hpack = hpack.NewEncoder(&c.block)
	_, err = io.WriteString(&c.out, http2.ClientPreface)
	return c, errors.Join(err, c.WriteSettings(), c.WriteWindowUpdate(0, 1<<30), c.flush())
}

func (c *soakClient) flush() error {
	_, err := c.out.WriteTo(c.conn)
	return err
}

// batch sends some calls, resets some of them, and reads the answers of the others.
func (c *soakClient) batch() error {
	const most, resetsOf, leavesOf = 32, 8, 200
	var begun []uint32
	for range 1 + c.random.IntN(most) {
		if err := c.ask(); err != nil {
			return err
		}
		begun = append(begun, c.stream)
	}
	if c.random.IntN(2) == 0 { // else the resets come with their requests
		if err := c.flush(); err != nil {
			return err
		}
	}
	for _, id := range begun {
		if c.random.IntN(resetsOf) > 0 {
			continue
		}
		c.open[id].reset = true
		c.waiting--
		c.resets.Add(1)
		if err := c.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
			return err
		}
	}
	if err := c.flush(); err != nil {
		return err
	}
	if c.random.IntN(leavesOf) == 0 {
		_ = c.conn.Close()
		return errLeft
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second)) // it only waits that long if the test fails
	for c.waiting > 0 {
		f, err := c.ReadFrame()
		if err != nil {
			return fmt.Errorf("%d calls have no answer: %w", c.waiting, err)
		}
		if err := c.receive(f); err != nil {
			return err
		}
	}
	return nil
}

// untilClosed reads what comes until the service closes the connection.
func (c *soakClient) untilClosed() error {
	for {
		f, err := c.ReadFrame()
		if errors.Is(err, io.EOF) {
			return c.conn.Close()
		} else if err != nil {
			return fmt.Errorf("after GOAWAY: %w", err)
		}
		if err := c.receive(f); err != nil {
			return err
		}
	}
}

// ask begins a call.
func (c *soakClient) ask() error {
	const most, users = 4, 100
	if c.stream++; c.stream > 1 {
		c.stream++
	}
	req := &ratelimitv3.RateLimitRequest{Domain: "soak"}
	for range 1 + c.random.IntN(most) {
		req.Descriptors = append(req.Descriptors, &ratelimitcommon.RateLimitDescriptor{
			Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "user", Value: strconv.Itoa(c.random.IntN(users))}},
		})
	}
	message, err := proto.Marshal(req)
	if err != nil {
		return err
	}
	c.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "soak"},
		{Name: ":path", Value: ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		_ = c.hpack.WriteField(f) // to memory
	}
	c.open[c.stream] = &soakCall{descriptors: len(req.GetDescriptors())}
	c.waiting++
	n := len(message)
	return errors.Join(
		c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.block.Bytes(), EndHeaders: true}),
		c.WriteData(c.stream, true, append([]byte{0, 0, 0, byte(n >> 8), byte(n)}, message...)))
}

// receive checks a frame of the service.
func (c *soakClient) receive(f http2.Frame) error {
	id := f.Header().StreamID
	call := c.open[id]
	switch f := f.(type) {
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			return fmt.Errorf("GOAWAY %v %s", f.ErrCode, f.DebugData())
		}
		c.leaving = true
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return errors.Join(c.WriteSettingsAck(), c.flush())
		}
	case *http2.PingFrame:
		return errors.Join(c.WritePing(true, f.Data), c.flush())
	case *http2.DataFrame:
		if call == nil {
			return fmt.Errorf("DATA of call %d, which has had its answer", id)
		}
		call.message = append(call.message, f.Data()...)
	case *http2.MetaHeadersFrame:
		if call == nil {
			return fmt.Errorf("HEADERS of call %d, which has had its answer", id)
		}
		if f.StreamEnded() {
			return c.answered(id, f)
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("call %d was reset: %v", id, f.ErrCode)
	}
	return nil
}

// answered checks an answer: it must be that of its call.
func (c *soakClient) answered(id uint32, trailers *http2.MetaHeadersFrame) error {
	call := c.open[id]
	delete(c.open, id)
	if !call.reset {
		c.waiting--
	}
	c.answers.Add(1)
	for _, h := range trailers.RegularFields() {
		if h.Name == "grpc-status" && h.Value != "0" {
			return fmt.Errorf("call %d: status %s", id, h.Value)
		}
	}
	const prefix = 5
	var res ratelimitv3.RateLimitResponse
	if len(call.message) < prefix {
		return fmt.Errorf("call %d: %d bytes", id, len(call.message))
	}
	if err := proto.Unmarshal(call.message[prefix:], &res); err != nil {
		return err
	}
	if got := len(res.GetStatuses()); got != call.descriptors {
		return fmt.Errorf("call %d: %d statuses for %d descriptors", id, got, call.descriptors)
	}
	return nil
}
