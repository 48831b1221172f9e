// Package auth is the codec of Envoy's external authorization service: messages of envoy.service.auth.v3.Authorization
// become requests ([Message.Unmarshal]), and decisions become messages ([Answer.Append]). For http_service, the same is
// done with requests and responses of HTTP ([HTTPRequest], [Answer.WriteHTTP]).
package auth

// ServiceName is the full name of the gRPC service, Method the full name of its only method.
const (
	ServiceName = "envoy.service.auth.v3.Authorization"
	Method      = "/" + ServiceName + "/Check"
)
