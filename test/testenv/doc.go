// Package testenv runs the real programs that tests need, such as Redis and Envoy, on free loopback ports until the
// end of the test. A missing binary fails the test with a message on how to install it. No test is skipped.
package testenv
