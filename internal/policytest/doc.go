// Package policytest runs tests of rules and policies: requests at times of a virtual clock, and what is expected of
// each. It decides them as the service would, without serving. docs/testing.md describes the format of the files.
package policytest
