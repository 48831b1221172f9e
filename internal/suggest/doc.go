// Package suggest contains what all messages about mistakes share: the [Mistake] itself, [Quoted] values, lists of the
// allowed words ([OneOf]), and the [Closest] word to a misspelt one.
package suggest
