package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	extauthz "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// problems returns the reasons why Envoy would refuse a configuration, or would not behave as intended.
func (m *Mesh) problems(envoys []Envoy) []string {
	policies := m.policies()
	var found []string
	for _, e := range envoys {
		for _, text := range append(e.problems(), e.identity(policies)...) {
			if !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	return found
}

func (e Envoy) problems() []string {
	var found []string
	clusters := map[string]*cluster.Cluster{}
	for _, c := range e.Clusters {
		clusters[c.Name] = c
	}
	look := func(m proto.Message) {
		switch m := m.(type) {
		case *rbacv3.RBAC:
			for name := range m.Policies {
				if strings.HasSuffix(name, "-deny-due-to-bad-CUSTOM-action") {
					found = append(found,
						"requests that match the policy get 403: meshConfig.extensionProviders has no such provider, "+
							"or there is no such Service, or a policy of another provider selects the same pods")
				}
			}
		case *extauthz.ExtAuthz:
			timeout := m.GetGrpcService().GetTimeout()
			if m.GetHttpService() != nil {
				timeout = m.GetHttpService().GetServerUri().GetTimeout()
			}
			if timeout.AsDuration() > time.Minute {
				found = append(found, fmt.Sprintf("the timeout of ext_authz is %v, Istio's default: set `timeout:`",
					timeout.AsDuration()))
			}
			if c := m.GetHttpService().GetServerUri().GetCluster(); c != "" && clusters[c] == nil {
				found = append(found, noCluster(c))
			}
		case *corev3.GrpcService_EnvoyGrpc:
			switch c := clusters[m.ClusterName]; {
			case m.ClusterName == "sds-grpc": // part of each proxy's bootstrap
			case c == nil:
				found = append(found, noCluster(m.ClusterName))
			case c.GetType() == cluster.Cluster_ORIGINAL_DST:
				found = append(found, fmt.Sprintf("the cluster %s is a headless Service, "+
					"for which Istio expects that the client knows the address of a pod", c.Name))
			case !speaksHTTP2(c):
				found = append(found, fmt.Sprintf("the cluster %s uses HTTP/1.1, but gRPC needs HTTP/2: "+
					"name the port of the Service grpc", c.Name))
			}
		}
	}
	for _, m := range e.resources() {
		if err := validate(m); err != nil {
			found = append(found, err.Error())
		}
		visit(m, look)
	}
	return found
}

// policies returns the policies of the rule files in ConfigMaps. If there is none, it returns a policy with the
// default names of the identity headers, because the service may have been installed by other means.
func (m *Mesh) policies() map[string]*authz.Policy {
	all := map[string]*authz.Policy{}
	for _, c := range m.ConfigMaps {
		for name, content := range c.Data {
			rules, _ := file.Parse([]file.File{{Name: name, Content: []byte(content)}}, file.Config{})
			maps.Copy(all, rules.Policies)
		}
	}
	if len(all) == 0 {
		const defaults = "domain: any\nauthz: { credentials: [{ api_key: { header: x-api-key } }] }\n"
		rules, _ := file.Parse([]file.File{{Name: "defaults", Content: []byte(defaults)}}, file.Config{})
		return rules.Policies
	}
	return all
}

// identity returns the problems that `extauthz check --envoy` finds.
func (e Envoy) identity(policies map[string]*authz.Policy) []string {
	var listeners, routes []json.RawMessage
	if err := errors.Join(appendJSON(&listeners, e.Listeners), appendJSON(&routes, e.Routes)); err != nil {
		return []string{err.Error()}
	}
	text, err := json.Marshal(map[string]any{"listeners": listeners, "routes": routes})
	if err != nil {
		return []string{err.Error()}
	}
	checked := doctor.Check(file.File{Name: e.Name, Content: text}, doctor.Rules{Policies: policies})
	var found []string
	for _, p := range checked.Findings {
		if checked.Managers > 0 || p.Line > 0 { // otherwise this Envoy does not call extauthz
			found = append(found, p.Message)
		}
	}
	return found
}

func appendJSON[M proto.Message](to *[]json.RawMessage, messages []M) error {
	for _, m := range messages {
		text, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		*to = append(*to, text)
	}
	return nil
}

func noCluster(name string) string {
	return fmt.Sprintf("there is no cluster %q: no Service has this name and this port", name)
}

func speaksHTTP2(c *cluster.Cluster) bool {
	options := &httpv3.HttpProtocolOptions{}
	packed, ok := c.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
	return ok && packed.UnmarshalTo(options) == nil &&
		(options.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil ||
			options.GetUseDownstreamProtocolConfig().GetHttp2ProtocolOptions() != nil)
}

// validate checks a message with the rules of its proto, as Envoy does. It also checks the messages packed into it.
func validate(m proto.Message) error {
	messages := []proto.Message{m}
	for _, packed := range within[*anypb.Any](m) {
		if message, err := packed.UnmarshalNew(); err == nil {
			messages = append(messages, message)
		}
	}
	for _, m := range messages {
		if rules, ok := m.(interface{ Validate() error }); ok {
			if err := rules.Validate(); err != nil {
				steps := strings.Split(err.Error(), " | caused by: ") // the last one is the cause
				return errors.New(steps[len(steps)-1])
			}
		}
	}
	return nil
}

// within returns all messages of a type in other messages, as visit finds them.
func within[M proto.Message](messages ...proto.Message) (all []M) {
	for _, m := range messages {
		visit(m, func(inner proto.Message) {
			if found, ok := inner.(M); ok {
				all = append(all, found)
			}
		})
	}
	return all
}

// visit calls f for a message and all messages in it, including those packed into an Any.
func visit(m proto.Message, f func(proto.Message)) {
	// Istio would have reported an unknown type, the only error.
	_ = protorange.Range(m.ProtoReflect(), func(v protopath.Values) error {
		if inner, ok := v.Index(-1).Value.Interface().(protoreflect.Message); ok {
			f(inner.Interface())
		}
		return nil
	})
}
