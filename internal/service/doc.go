// Package service builds the service from its environment and runs it. [ReadSettings] reads and checks the environment
// variables, [List] describes them, and [Run] serves until its context is done.
package service
