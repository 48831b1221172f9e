package main

// dataFlow draws the flow of a request. On the left, the request goes down from the client through Envoy's two
// filters to the application. On the right is extauthz, which the filters call.
func dataFlow() string {
	const (
		leftX, leftWide   = 20, 270
		rightX, rightWide = 480, 300
		leftMid           = leftX + leftWide/2
		linkFrom, linkTo  = leftX + leftWide - 12, rightX + 12 // from filter to service
		linkMid           = (leftX + leftWide + rightX) / 2.0
	)
	s := newSVG(492, "The flow of a request",
		"A client's request reaches Envoy. Its filter ext_authz calls Check of extauthz, which authenticates the "+
			"caller, checks its access and applies its limits. The result is 401, 403 or 429 for the client, or OK with "+
			"the owner and the plan. The filter ratelimit then calls ShouldRateLimit with the descriptors of the route, "+
			"among them owner and plan. extauthz matches descriptors with rules. Rules name buckets, which are in local "+
			"memory or in Redis. The application receives the request with the owner's name instead of the credential. "+
			"The client receives the response with the headers of the limit. If extauthz is unavailable, ext_authz "+
			"answers 503 and ratelimit allows the request. If Redis is unavailable, extauthz decides in local memory.")
	s.text(20, 32, "title", "The flow of a request")
	s.text(rightX+rightWide, 32, "dim end", "Either filter works without the other.")

	// The request, from top to bottom.
	s.rect(leftX, 52, leftWide, 38, "box", 6)
	s.text(leftMid, 76, "name middle", "Client")
	arrows(s, leftMid, 92, 152)
	s.text(leftMid-18, 117, "small end", "x-api-key, a token")
	s.text(leftMid-18, 133, "small end", "or a certificate")
	s.text(leftMid+18, 109, "small", "response, or 401,")
	s.text(leftMid+18, 125, "small", "403, 429; ratelimit,")
	s.text(leftMid+18, 141, "small", "retry-after")

	s.rect(leftX, 154, leftWide, 216, "box", 6)
	s.text(leftX+14, 177, "name", "Envoy")
	filter(s, leftX+12, 190, leftWide-24, "ext_authz", "authentication, access,", "limits of the caller")
	filter(s, leftX+12, 280, leftWide-24, "ratelimit", "limits by route, address,", "header, owner or plan")
	s.arrow(point{leftMid, 264}, point{leftMid, 279})

	arrows(s, leftMid, 372, 432)
	s.text(leftMid-18, 397, "small end", "x-auth-owner,")
	s.text(leftMid-18, 413, "small end", "x-auth-plan")
	s.text(leftMid+18, 405, "small", "response")
	s.rect(leftX, 434, leftWide, 38, "box", 6)
	s.text(leftMid, 458, "name middle", "Your application")

	// The service that the filters call.
	s.rect(rightX, 154, rightWide, 216, "box", 6)
	s.text(rightX+14, 177, "name", "extauthz")
	s.rect(rightX+12, 190, rightWide-24, 74, "inner", 5)
	s.text(rightX+24, 211, "name", "policy")
	s.text(rightX+24, 231, "small", "path → access → credential → scopes")
	s.text(rightX+24, 249, "small dim", "API keys, JWT, mTLS")
	s.arrow(point{rightX + 60, 264}, point{rightX + 60, 279})
	s.rect(rightX+12, 280, rightWide-24, 74, "inner", 5)
	s.text(rightX+24, 301, "name", "descriptors → rules → buckets")
	s.text(rightX+24, 321, "small", "charges all buckets of a request, or none;")
	s.text(rightX+24, 339, "small", "five exact algorithms")

	exchange(s, linkFrom, linkTo, 218, linkMid, "Check", "401, 403, 429, or OK", "with owner and plan")
	exchange(s, linkFrom, linkTo, 308, linkMid, "ShouldRateLimit", "OK, or over the limit,", "and headers")
	s.text(linkMid, 276, "small bad middle", "if unavailable: 503")
	s.text(linkMid, 366, "small bad middle", "if unavailable: allows")

	// The stores of buckets.
	const memoryX, redisX, storeWide = rightX, rightX + 160, 140
	s.rect(memoryX, 434, storeWide, 38, "box", 6)
	s.text(memoryX+storeWide/2, 458, "name middle", "Local memory")
	s.rect(redisX, 434, storeWide, 38, "box", 6)
	s.text(redisX+storeWide/2, 458, "name middle", "Redis, shared")
	arrows(s, memoryX+storeWide/2, 372, 432)
	arrows(s, redisX+storeWide/2, 372, 432)
	s.text((memoryX+redisX+storeWide)/2, 458, "small middle", "or")
	s.text(redisX+storeWide/2-18, 390, "small end", "one round trip")
	s.text(redisX+storeWide/2-18, 406, "small bad end", "if unavailable:")
	s.text(redisX+storeWide/2-18, 422, "small bad end", "local memory")
	return s.String()
}

func filter(s *svg, x, y, wide float64, name, first, second string) {
	s.rect(x, y, wide, 74, "inner", 5)
	s.text(x+12, y+21, "name code", name)
	s.text(x+12, y+41, "small", first)
	s.text(x+12, y+59, "small", second)
}

// exchange draws a call as an arrow to the right, and its result in two lines below an arrow back.
func exchange(s *svg, from, to, y, middle float64, call, first, second string) {
	s.arrow(point{from, y}, point{to, y})
	s.text(middle, y-7, "small code middle", call)
	s.arrow(point{to, y + 12}, point{from, y + 12})
	s.text(middle, y+28, "small middle", first)
	s.text(middle, y+43, "small middle", second)
}

// arrows draws an arrow down and an arrow up.
func arrows(s *svg, x, top, bottom float64) {
	s.arrow(point{x - 7, top}, point{x - 7, bottom})
	s.arrow(point{x + 7, bottom}, point{x + 7, top})
}
