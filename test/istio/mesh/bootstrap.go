package mesh

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/networking/core"
	"istio.io/istio/pkg/wellknown"
)

// Bootstrap returns a configuration for an Envoy outside of a mesh. addresses has the endpoint of a cluster
// (host:port); other clusters have no endpoints. Listeners take free ports of this machine.
//
// Bootstrap removes Istio's own filters, which other builds of Envoy do not have, and mTLS, because there are no
// certificates. Of a sidecar it keeps only inbound traffic. In a pod, iptables sends all inbound traffic to one port,
// and Envoy finds the original port. Here each original port has its own listener: inbound_<port of the pod>, and
// inbound_other for ports without a Service.
//
// Of a waypoint it keeps what is inside the tunnels (HBONE). A tunnel names the Service and its port. Here each of them
// has its own listener, with the name of its filter chain: inbound-vip|<port>|<http or tcp>|<Service>.
func (e Envoy) Bootstrap(addresses map[string]string) (string, error) {
	routes := map[string]*route.RouteConfiguration{}
	for _, r := range e.Routes {
		routes[r.Name] = r
	}
	listeners, err := e.plainListeners(routes)
	if err != nil {
		return "", err
	}
	static := &bootstrap.Bootstrap_StaticResources{Listeners: listeners}
	for _, c := range e.Clusters {
		if e.kind == model.Waypoint && !strings.Contains(c.Name, "|") {
			continue // a tunnel
		}
		c = proto.CloneOf(c)
		c.TransportSocketMatches, c.Filters = nil, nil
		if strings.HasPrefix(c.Name, inboundVIP) {
			c.TransportSocket = nil // it leads into a tunnel
		}
		address, given := addresses[c.Name]
		if given || c.GetType() == cluster.Cluster_EDS {
			if c.LoadAssignment, err = assign(c.Name, address); err != nil {
				return "", err
			}
			c.EdsClusterConfig = nil
			if c.LbPolicy == cluster.Cluster_CLUSTER_PROVIDED { // it was the original destination of the client
				c.LbPolicy, c.LbConfig = cluster.Cluster_ROUND_ROBIN, nil
			}
		}
		if c.GetType() != cluster.Cluster_ORIGINAL_DST || given {
			c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
		}
		static.Clusters = append(static.Clusters, c)
	}
	visit(static, func(m proto.Message) {
		switch m := m.(type) {
		case *route.RouteAction:
			m.MaxGrpcTimeout = nil //nolint:staticcheck // Istio sets this deprecated field, which ValidateEnvoy refuses
		case *corev3.SocketAddress:
			m.Address = "127.0.0.1"
		}
	})
	text, err := protojson.Marshal(&bootstrap.Bootstrap{StaticResources: static})
	if err != nil {
		return "", err
	}
	var indented bytes.Buffer // protojson puts spaces at random
	err = json.Indent(&indented, text, "", "  ")
	return indented.String(), err
}

func assign(name, address string) (*endpoint.ClusterLoadAssignment, error) {
	assignment := &endpoint.ClusterLoadAssignment{ClusterName: name}
	if address == "" {
		return assignment, nil
	}
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the address of %s: %w", name, err)
	}
	assignment.Endpoints = []*endpoint.LocalityLbEndpoints{{LbEndpoints: []*endpoint.LbEndpoint{{
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: loopback(a.Port)}},
	}}}}
	return assignment, nil
}

func loopback(port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// plainListeners returns the listeners of the gateway, or the inbound listeners of a sidecar.
func (e Envoy) plainListeners(routes map[string]*route.RouteConfiguration) ([]*listener.Listener, error) {
	var plain []*listener.Listener
	for _, l := range e.Listeners {
		if l.Name != virtualInbound && l.Name != core.MainInternalName {
			if e.kind == model.Waypoint || l.TrafficDirection == corev3.TrafficDirection_OUTBOUND && e.kind != model.Router {
				continue
			}
			plain = append(plain, &listener.Listener{Name: l.Name, FilterChains: slices.Clone(l.FilterChains)})
			continue
		}
		for _, chain := range l.FilterChains {
			if name := inboundName(chain); name != "" {
				chain = proto.CloneOf(chain)
				chain.FilterChainMatch = nil
				plain = append(plain, &listener.Listener{Name: name, FilterChains: []*listener.FilterChain{chain}})
			}
		}
	}
	for _, l := range plain {
		l.Address = loopback(0)
		for i, chain := range l.FilterChains {
			chain = proto.CloneOf(chain)
			filters, err := plainFilters(chain.Filters, routes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", l.Name, err)
			}
			chain.Filters = filters
			l.FilterChains[i] = chain
		}
	}
	return plain, nil
}

const (
	virtualInbound = "virtualInbound" // the listener of a sidecar to which iptables sends all inbound traffic
	inboundVIP     = "inbound-vip|"   // the filter chains and clusters for the Services of a waypoint
)

// inboundName returns the name of a listener for a filter chain with plaintext HTTP or of a waypoint, and otherwise "".
func inboundName(chain *listener.FilterChain) string {
	http := slices.ContainsFunc(chain.Filters, func(f *listener.Filter) bool {
		return f.Name == wellknown.HTTPConnectionManager
	})
	match := chain.GetFilterChainMatch()
	switch {
	case strings.HasPrefix(chain.Name, inboundVIP):
		return chain.Name
	case !http || chain.TransportSocket != nil:
		return ""
	case match.GetDestinationPort() != nil:
		return "inbound_" + strconv.Itoa(int(match.DestinationPort.Value))
	case len(match.GetPrefixRanges()) > 0 && strings.Contains(match.PrefixRanges[0].AddressPrefix, ":"):
		return "" // the same for IPv6
	}
	return "inbound_other"
}

// plainFilters removes Istio's own filters, also in a connection manager, which gets the routes that it would fetch.
func plainFilters(filters []*listener.Filter, routes map[string]*route.RouteConfiguration) ([]*listener.Filter, error) {
	var plain []*listener.Filter
	for _, f := range filters {
		if ofIstio(f.Name) {
			continue
		}
		if f.Name == wellknown.HTTPConnectionManager {
			manager := &hcm.HttpConnectionManager{}
			if err := f.GetTypedConfig().UnmarshalTo(manager); err != nil {
				return nil, err
			}
			manager.HttpFilters = slices.DeleteFunc(manager.HttpFilters, func(f *hcm.HttpFilter) bool { return ofIstio(f.Name) })
			if rds := manager.GetRds(); rds != nil {
				if routes[rds.RouteConfigName] == nil {
					return nil, fmt.Errorf("there are no routes %q", rds.RouteConfigName)
				}
				manager.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes[rds.RouteConfigName]}
			}
			packed, err := anypb.New(manager)
			if err != nil {
				return nil, err
			}
			f = &listener.Filter{Name: f.Name, ConfigType: &listener.Filter_TypedConfig{TypedConfig: packed}}
		}
		plain = append(plain, f)
	}
	return plain, nil
}

// ofIstio reports whether only Istio's build of Envoy has a filter.
func ofIstio(filter string) bool {
	return strings.HasPrefix(filter, "istio.") || strings.HasSuffix(filter, "_peer_metadata")
}
