// Package hold holds answers until their time (max_delay). All services share one [Queue], which bounds held answers.
package hold
