// Package rules holds the rules that the service decides by: a [Set] of rate limits and policies, the [Source] of such
// sets, and the active rules ([Live]). [Dump] shows the active rules.
package rules
