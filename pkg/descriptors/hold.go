package descriptors

// HoldReserve is the key of a last entry that makes the cost of a descriptor a hold. Its value is the id of the hold.
const HoldReserve = "hold.reserve"
