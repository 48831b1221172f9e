package h2unary

import (
	"encoding/binary"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/guard"
)

const (
	// settingSize is the number of bytes of a setting.
	settingSize = 6
	// maxSettings bounds one SETTINGS frame. There are a dozen settings.
	maxSettings   = 32
	largestFrames = 1<<24 - 1
)

// peerSettings are the settings of the client, as far as they matter for a server that sends small answers.
type peerSettings struct {
	// window is the initial window of streams.
	window   int
	encoding encoding
	// resized means that the table has changed since the last header block.
	resized bool
}

// sendSettings sends the first frames of the server. c.mu is held.
func (c *Conn) sendSettings() {
	settings := [...]http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.server.cfg.MaxStreams)},
		// A message fits into this window, so that streams need no WINDOW_UPDATE.
		{ID: http2.SettingInitialWindowSize, Val: uint32(c.streamWindow())},
		{ID: http2.SettingMaxHeaderListSize, Val: maxHeaderList},
	}
	b := appendFrame(c.output.next(), http2.FrameSettings, 0, 0, len(settings)*settingSize)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	c.output.add(appendWindowUpdate(b, 0, connectionWindow-initialWindow))
}

// streamWindow is the window of a stream in receiving.
func (c *Conn) streamWindow() int { return c.server.cfg.MaxMessage + prefix }

// receiveSettings handles SETTINGS. c.mu is held.
func (c *Conn) receiveSettings(f *frame) *failure {
	switch {
	case f.stream != 0:
		return broken(http2.ErrCodeProtocol, "SETTINGS of a stream")
	case f.flags.Has(http2.FlagSettingsAck) && len(f.payload) > 0, len(f.payload)%settingSize != 0:
		return broken(http2.ErrCodeFrameSize, "SETTINGS of a wrong length")
	case f.flags.Has(http2.FlagSettingsAck):
		c.started = sentAck
		return nil
	case len(f.payload) > maxSettings*settingSize:
		return &failure{http2.ErrCodeEnhanceYourCalm, guard.Flood, "too many settings"}
	}
	for p := f.payload; len(p) > 0; p = p[settingSize:] {
		id := http2.SettingID(binary.BigEndian.Uint16(p))
		if failed := c.receiveSetting(id, binary.BigEndian.Uint32(p[2:])); failed != nil {
			return failed
		}
	}
	for _, k := range c.calls { // This runs once for all settings, because it takes time.
		if c.peer.window+k.window > maxWindow {
			return broken(http2.ErrCodeFlowControl, "SETTINGS_INITIAL_WINDOW_SIZE makes a window too large")
		}
	}
	c.output.add(appendFrame(c.output.next(), http2.FrameSettings, http2.FlagSettingsAck, 0, 0))
	c.resumeAll() // The initial window may be larger.
	return nil
}

func (c *Conn) receiveSetting(id http2.SettingID, value uint32) *failure {
	switch id {
	case http2.SettingEnablePush:
		if value > 1 {
			return broken(http2.ErrCodeProtocol, "SETTINGS_ENABLE_PUSH is neither 0 nor 1")
		}
	case http2.SettingMaxFrameSize:
		if value < maxFrame || value > largestFrames {
			return broken(http2.ErrCodeProtocol, "SETTINGS_MAX_FRAME_SIZE is out of range")
		}
	case http2.SettingHeaderTableSize:
		// The server uses the table of a client only while it has its first size. Otherwise the next block sets the size 0,
		// because clients that have made it smaller demand a size update (RFC 9113, 4.3.1).
		if value < maxTable || c.peer.encoding != notInserted {
			c.peer.encoding, c.peer.resized = noTable, true
		}
	case http2.SettingInitialWindowSize:
		if value > maxWindow {
			return broken(http2.ErrCodeFlowControl, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
		}
		c.peer.window = int(value)
	}
	return nil
}

// receiveWindowUpdate handles WINDOW_UPDATE. c.mu is held.
func (c *Conn) receiveWindowUpdate(f *frame) *failure {
	if len(f.payload) != 4 {
		return broken(http2.ErrCodeFrameSize, "WINDOW_UPDATE of a wrong length")
	}
	increment := int64(binary.BigEndian.Uint32(f.payload) &^ (1 << 31))
	if f.stream == 0 {
		if increment == 0 {
			return broken(http2.ErrCodeProtocol, "WINDOW_UPDATE of 0")
		}
		if c.window.send += increment; c.window.send > maxWindow {
			return broken(http2.ErrCodeFlowControl, "the window of the connection is too large")
		}
		c.resumeAll()
		return nil
	}
	k := c.calls[f.stream]
	switch {
	case k == nil && c.streams.idle(f.stream):
		return broken(http2.ErrCodeProtocol, "WINDOW_UPDATE of an idle stream")
	case k == nil || k.state == reset:
		return nil
	case increment == 0:
		return c.breakStream(k, http2.ErrCodeProtocol)
	}
	if k.window += int(increment); int64(c.peer.window)+int64(k.window) > maxWindow {
		return c.breakStream(k, http2.ErrCodeFlowControl)
	}
	c.resume(k)
	return nil
}
