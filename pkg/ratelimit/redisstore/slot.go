package redisstore

import "strings"

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// slotOf returns the slot of a key. If the key has a tag in braces, only the tag counts.
func slotOf(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return checksum(0, key) % slots
}

// checksum returns the CRC of a text that follows a text with the given CRC.
func checksum(crc uint16, text string) uint16 {
	for i := range len(text) {
		crc = crc<<8 ^ crc16[byte(crc>>8)^text[i]]
	}
	return crc
}

// crc16 is the table of CRC-16/XMODEM, which the specification of Redis Cluster prescribes.
var crc16 = crcTable()

func crcTable() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}
