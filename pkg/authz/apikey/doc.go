// Package apikey makes and checks API keys. A key is shown once, when it is made. The key file and Redis hold only its
// HMAC under a secret of the service, so that a copy of them admits no caller.
//
// [NewKey] makes a key, [Record] is its stored form, a [Source] holds records, and [Keys] checks the keys of requests.
package apikey
