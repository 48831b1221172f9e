// Package rules is what the service decides by: the rate limits and policies of one generation, the sources that
// they come from, and how they are shown to people.
package rules
