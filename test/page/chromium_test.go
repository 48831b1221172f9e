package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// tab is a page of a headless Chromium. It speaks the DevTools protocol over two pipes, each message ends with a zero
// byte.
type tab struct {
	testing.TB
	to      io.Writer
	from    *bufio.Reader
	session string
	last    int
	// said are the entries of its console: among them, what the Content-Security-Policy has refused.
	said []string
}

// open starts Chromium. It ends with the test.
func open(t testing.TB) *tab {
	t.Helper()
	toChild, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, fromChild, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Root needs --no-sandbox, and containers have a small /dev/shm.
	cmd := exec.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--force-device-scale-factor=1", "--hide-scrollbars", "--remote-debugging-pipe",
		"--user-data-dir="+t.TempDir())
	cmd.ExtraFiles = []*os.File{toChild, fromChild}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = toChild.Close(), fromChild.Close() // they belong to Chromium
	p := &tab{TB: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() {
		p.session = ""
		p.call("Browser.close", nil, nil)
		_ = cmd.Wait() // its status does not matter
		_, _ = to.Close(), from.Close()
	})
	const patience = 2 * time.Minute // it only waits that long if the test fails
	_ = from.SetReadDeadline(time.Now().Add(patience))
	var target struct{ TargetID, SessionID string }
	p.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	p.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	p.session = target.SessionID
	for _, domain := range []string{"Page", "Log", "Runtime"} {
		p.call(domain+".enable", nil, nil)
	}
	return p
}

// message is a message of the DevTools protocol.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    any             `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     json.RawMessage `json:"error,omitempty"`
}

// call calls a method and reads its result.
func (p *tab) call(method string, params, result any) {
	p.Helper()
	p.last++
	text, err := json.Marshal(message{ID: p.last, SessionID: p.session, Method: method, Params: params})
	if err == nil {
		_, err = p.to.Write(append(text, 0))
	}
	for err == nil {
		var m message
		if m, err = p.read(); err != nil || m.ID != p.last {
			continue
		}
		if m.Error != nil {
			err = errors.New(string(m.Error))
		} else if result != nil {
			err = json.Unmarshal(m.Result, result)
		}
		break
	}
	if err != nil {
		p.Fatalf("Chromium: %s: %v", method, err)
	}
}

func (p *tab) read() (m message, err error) {
	text, err := p.from.ReadBytes(0)
	if err != nil {
		return m, err
	}
	err = json.Unmarshal(text[:len(text)-1], &m)
	if m.Method == "Log.entryAdded" || m.Method == "Runtime.exceptionThrown" {
		p.said = append(p.said, string(text))
	}
	return m, err
}

// await reads events until one of a method.
func (p *tab) await(method string) {
	p.Helper()
	for {
		m, err := p.read()
		if err != nil {
			p.Fatalf("Chromium: no %s: %v", method, err)
		}
		if m.Method == method {
			return
		}
	}
}

// view is a window with a colour scheme.
type view struct {
	name   string
	width  int
	scheme string
}

var views = []view{
	{"light", 1100, "light"}, {"dark", 1100, "dark"}, {"narrow", 320, "light"}, {"narrow dark", 320, "dark"},
}

// show loads an address in a view.
func (p *tab) show(v view, address string) {
	p.Helper()
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": v.width, "height": 720, "deviceScaleFactor": 1, "mobile": false,
	}, nil)
	p.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": v.scheme}},
	}, nil)
	p.call("Page.navigate", map[string]any{"url": address}, nil)
	p.await("Page.loadEventFired")
}

// eval evaluates JavaScript, which the pages themselves have none of.
func eval[T any](p *tab, script string) (value T) {
	p.Helper()
	var answer struct {
		Result           struct{ Value T }
		ExceptionDetails any
	}
	p.call("Runtime.evaluate", map[string]any{"expression": script, "returnByValue": true}, &answer)
	if answer.ExceptionDetails != nil {
		p.Fatalf("%s: %v", script, answer.ExceptionDetails)
	}
	return answer.Result.Value
}

// press presses a key.
func (p *tab) press(key string) {
	p.Helper()
	code, text := map[string]int{"Tab": 9, "Enter": 13}[key], ""
	if key == "Enter" {
		text = "\r"
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.call("Input.dispatchKeyEvent", map[string]any{
			"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
		}, nil)
		text = ""
	}
}

// enter types a text into the field that has the focus.
func (p *tab) enter(text string) {
	p.Helper()
	p.call("Input.insertText", map[string]any{"text": text}, nil)
}

// focus names the element that has the focus, and fails if that cannot be seen.
func (p *tab) focus() string {
	p.Helper()
	got := eval[string](p, `(() => { const e = document.activeElement, s = getComputedStyle(e);
		return (s.outlineStyle == "none" || s.outlineWidth == "0px" ? "unseen " : "") +
			e.tagName.toLowerCase() + " " + (e.id || e.textContent.trim()) })()`)
	if strings.HasPrefix(got, "unseen") && got != "unseen main main" {
		p.Errorf("the focus is not visible: %s", got)
	}
	return strings.TrimPrefix(got, "unseen ")
}

// picture returns the window as PNG, or the whole page.
func (p *tab) picture(whole bool) []byte {
	p.Helper()
	var shot struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		p.Fatal(err)
	}
	return png
}

// unreadable lists texts whose contrast is below 4.5 (WCAG 2.2, 1.4.3 AA), and fields without a label.
const unreadable = `(() => {
	const line = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
	const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(v => line(v / 255));
		return .2126 * r + .7152 * g + .0722 * b };
	const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
		if (!c.startsWith("rgba(0, 0, 0, 0")) return c } return "rgb(255, 255, 255)" };
	const bad = [];
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()) || e.closest("svg")) continue;
		const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < 4.5) bad.push(e.tagName + " " + e.className + " " + e.textContent.slice(0, 40));
	}
	for (const e of document.querySelectorAll("input:not([type=hidden]), textarea"))
		if (!e.labels.length) bad.push("no label: " + e.id);
	for (const e of document.querySelectorAll("svg")) if (!e.querySelector("title").textContent) bad.push("no text: svg");
	return bad.join("; ") })()`

// check fails if something of a page does not fit the window, cannot be read, or was refused by its policy.
func (p *tab) check(what string) {
	p.Helper()
	if over := eval[int](p, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		p.Errorf("%s: %d pixels are beside the window", what, over)
	}
	if bad := eval[string](p, unreadable); bad != "" {
		p.Errorf("%s: %s", what, bad)
	}
	if scripts := eval[int](p, `document.scripts.length`); scripts > 0 || eval[bool](p, `"pwned" in window`) {
		p.Errorf("%s: the page has %d scripts", what, scripts)
	}
	if p.said != nil {
		p.Errorf("%s: the console has %s", what, fmt.Sprint(p.said))
		p.said = nil
	}
}
