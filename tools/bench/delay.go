package main

import (
	"context"
	"net"
	"time"
)

// delayed passes connections on to a server, as a network with this round trip does. It ends with ctx.
func delayed(ctx context.Context, server string, roundTrip time.Duration) (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				_ = from.Close()
				continue
			}
			go carry(to, from, roundTrip/2)
			go carry(from, to, roundTrip/2)
		}
	}()
	return listener.Addr().String(), nil
}

// piece is data on its way.
type piece struct {
	due  time.Time
	data []byte
}

// carry copies data that arrives some time after it was sent. It ends when either side closes its connection.
func carry(to, from net.Conn, after time.Duration) {
	onTheWay := make(chan piece, 1024)
	go func() {
		defer close(onTheWay)
		for {
			buf := make([]byte, 1<<14)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			onTheWay <- piece{time.Now().Add(after), buf[:n]}
		}
	}()
	for p := range onTheWay {
		time.Sleep(time.Until(p.due))
		_, _ = to.Write(p.data) // after an error, the other direction ends
	}
	_, _ = to.Close(), from.Close()
}
