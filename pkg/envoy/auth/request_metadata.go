package auth

import "github.com/extauthz/extauthz/pkg/wire"

// requestMetadata is the metadata_context of a CheckRequest. It reads in the message what a policy asks for.
type requestMetadata struct{ message string }

// filters calls read with each entry of filter_metadata, the map from namespaces to google.protobuf.Struct.
func (m *requestMetadata) filters(read func(entry string) error) error {
	return wire.Each(m.message, checkAttributes, func(attributes string) error {
		return wire.Each(attributes, attributesMetadata, func(metadata string) error {
			return wire.Each(metadata, metadataFilters, read)
		})
	})
}

// Fits reports whether all metadata is well-formed and has at most wire.MostValues values.
func (m *requestMetadata) Fits() bool {
	values := 0
	err := m.filters(func(entry string) error {
		return wire.Each(entry, filterFields, func(fields string) error {
			n, err := wire.CountValues(fields)
			values += n
			return err
		})
	})
	return err == nil && values <= wire.MostValues
}

// At returns the value at a path, see authz.RequestMetadata.
func (m *requestMetadata) At(path []string) (value any) {
	_ = m.filters(func(entry string) error { // see Fits
		namespace, _, _ := wire.ReadEntry(entry)
		if namespace != path[0] {
			return nil
		}
		value = nil // the last entry of a namespace holds
		return wire.Each(entry, filterFields, func(fields string) error {
			value = wire.ValueAt(fields, path[1:], value)
			return nil
		})
	})
	return value
}
