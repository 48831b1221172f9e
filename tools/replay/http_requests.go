package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/tools/migrate"
)

// HTTPRequest is a request to both gateways. It has no body.
type HTTPRequest struct {
	// Method is GET if it is missing.
	Method string `json:"method"`
	// Path is the path, with the query if there is one.
	Path string `json:"path"`
	// Headers are added to those of the connection. `host` replaces the address of the gateway.
	Headers map[string]string `json:"headers"`
}

// ReadHTTP reads recorded requests as Read does.
func ReadHTTP(name string, from io.Reader) ([]*HTTPRequest, error) {
	return readLines(name, from, "HTTP request", func(line []byte) (*HTTPRequest, error) {
		r := new(HTTPRequest)
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(r); err != nil {
			return nil, fmt.Errorf("no HTTP request in JSON: %w", err)
		}
		if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("more than one JSON value: want one request a line")
		}
		return r, r.check()
	})
}

// check returns the mistake of a request, and sets what is missing.
func (r *HTTPRequest) check() error {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if !httpguts.ValidHeaderFieldName(r.Method) || r.Method == http.MethodConnect {
		return fmt.Errorf("`method` cannot be %s: want a method such as GET", suggest.Quoted(r.Method))
	}
	if !strings.HasPrefix(r.Path, "/") {
		return fmt.Errorf("`path` cannot be %s: want one that begins with /, such as /orders/1", suggest.Quoted(r.Path))
	}
	if _, err := r.target("http://gateway"); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if err := CheckHeader(name, r.Headers[name]); err != nil {
			return err
		}
		if lower := strings.ToLower(name); seen[lower] {
			return fmt.Errorf("the header %s is there twice", suggest.Quoted(lower))
		}
		seen[strings.ToLower(name)] = true
	}
	return nil
}

// CheckHeader returns an error if a header cannot be sent. The error does not show the value, which may be a secret.
func CheckHeader(name, value string) error {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return errors.New("the name of a header is not valid (it is not shown): want one such as x-api-key")
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("the value of %s cannot be sent (it is not shown): it has control characters", suggest.Quoted(name))
	case slices.Contains([]string{"connection", "content-length", "trailer", "transfer-encoding", "upgrade"},
		strings.ToLower(name)):
		return fmt.Errorf("%s belongs to a connection: leave it out", suggest.Quoted(name))
	}
	return nil
}

// target returns the URL of the request at an address.
func (r *HTTPRequest) target(address string) (*url.URL, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	u, err := url.ParseRequestURI(r.Path)
	if err != nil {
		return nil, fmt.Errorf("`path` cannot be %s: want a valid path", suggest.Quoted(r.Path))
	}
	u.Scheme, u.Host = base.Scheme, base.Host
	return u, nil
}

// GenerateHTTP makes requests from routes. For each route they use up the bucket and are denied twice, but if that
// takes more than maxRoute requests, six are made. word stands for any segment of a path and is the key of a client.
// All requests have the headers. GenerateHTTP stops at MaxRequests.
func GenerateHTTP(g migrate.SpringGateway, headers map[string]string, word string) (requests []*HTTPRequest) {
	const maxRoute, few = 100, 6
	for _, route := range g.Routes {
		n := int64(1) // without a limit
		if route.Limited() {
			if n = route.Burst/route.Tokens + 2; n > maxRoute {
				n = few
			}
		}
		r := requestOf(route, headers, word)
		for range n {
			if len(requests) == MaxRequests {
				return requests
			}
			requests = append(requests, r)
		}
	}
	return requests
}

// requestOf returns a request that a route takes, of a client whose key is the word.
func requestOf(route *migrate.SpringRoute, headers map[string]string, word string) *HTTPRequest {
	path := url.URL{Path: strings.ReplaceAll(route.Example, "*", word)}
	r := &HTTPRequest{Method: http.MethodGet}
	if len(route.Methods) > 0 {
		r.Method = route.Methods[0]
	}
	switch {
	case !route.Limited():
	case route.Key.Source == "header":
		r.Headers = map[string]string{route.Key.Name: word}
	case route.Key.Source == "query":
		path.RawQuery = url.Values{route.Key.Name: {word}}.Encode()
	}
	r.Path = path.RequestURI()
	r.AddHeaders(headers)
	return r
}

// AddHeaders adds headers that the request does not have.
func (r *HTTPRequest) AddHeaders(headers map[string]string) {
	if r.Headers == nil {
		r.Headers = map[string]string{}
	}
	for name, value := range headers {
		if _, own := r.header(name); !own {
			r.Headers[name] = value
		}
	}
}

// header returns a header, whose name can be in any case.
func (r *HTTPRequest) header(name string) (value string, ok bool) {
	for n, value := range r.Headers {
		if strings.EqualFold(n, name) {
			return value, true
		}
	}
	return "", false
}
