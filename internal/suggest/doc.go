// Package suggest has what messages about mistakes share: the [Mistake], [Quoted] values, and the [Closest] word.
package suggest
