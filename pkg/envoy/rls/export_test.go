package rls

// Unmarshal is for tests.
var Unmarshal = unmarshal
