// Package replay sends the same requests to two services and compares their answers: see [Compare] for rate limit
// services, and [CompareHTTP] for gateways. The requests are recorded ones ([Read], [ReadHTTP]) or are made from rules
// ([Generate]) or routes ([GenerateHTTP]). A difference that the docs list has the name of its row there.
package replay
