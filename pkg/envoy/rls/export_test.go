package rls

// Unmarshal exports unmarshal for tests.
var Unmarshal = unmarshal
