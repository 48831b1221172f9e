// Package auth is Envoy's external authorization service: envoy.service.auth.v3.Authorization over gRPC
// ([Server.Answer]), and the same decisions over HTTP for http_service ([Server.HTTP]).
package auth
