// Package service builds the service from its settings and runs it: [Run] serves until its context is done.
package service
