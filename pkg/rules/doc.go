// Package rules holds the rules that the service decides by: a [Set] of a [Source], and the active one ([Live]).
package rules
