package rulefile

import "github.com/extauthz/extauthz/internal/suggest"

// The words of messages, under shorter names.
var (
	quoted     = suggest.Quoted
	oneOf      = suggest.OneOf
	didYouMean = suggest.DidYouMean
)
