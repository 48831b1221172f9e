package guard_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// unreadOnManyConnections sends requests on a thousand connections, as many as the service takes, and reads no answer.
func unreadOnManyConnections(a *arena) {
	const clients, together, requests = 1000, 50, 64
	batch := batchOfRequests(requests)
	var open sync.WaitGroup
	places := make(chan struct{}, together)
	for range clients {
		conn := a.dial(a.grpc())
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // the system holds few answers
		open.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			fill(conn, bytes.Clone(batch), requests)
		})
	}
	open.Wait()
}

// fill sends batches of requests until the service takes no more.
func fill(conn net.Conn, batch []byte, requests uint32) {
	var hello bytes.Buffer
	framer := http2.NewFramer(&hello, nil)
	_, _ = hello.WriteString(http2.ClientPreface)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	_ = framer.WriteWindowUpdate(0, 1<<30)
	_, err := hello.WriteTo(conn)
	for first := uint32(1); err == nil; first += 2 * requests {
		stream := first
		for at := 0; at < len(batch); {
			binary.BigEndian.PutUint32(batch[at+5:], stream)
			if http2.FrameType(batch[at+3]) == http2.FrameData {
				stream += 2
			}
			at += 9 + int(batch[at+1])<<8 + int(batch[at+2])
		}
		_ = conn.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, err = conn.Write(batch)
	}
}

// batchOfRequests returns requests whose streams have no numbers yet.
func batchOfRequests(n int) []byte {
	var block, out bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: rateLimit},
		{Name: ":authority", Value: "a"}, {Name: "content-type", Value: "application/grpc"},
	} {
		f.Sensitive = true // the same bytes mean the same in each request
		_ = encoder.WriteField(f)
	}
	framer := http2.NewFramer(&out, io.MultiReader())
	for range n {
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
		_ = framer.WriteData(1, true, message(0, call()))
	}
	return out.Bytes()
}
