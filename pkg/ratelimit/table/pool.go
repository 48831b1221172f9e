package table

// pool keeps values that do not fit an entry, under numbers from 1.
type pool[T any] struct {
	items chunks[T]
	// used is the highest number that was ever used; free are those that are free now.
	used uint32
	free []uint32
}

func (p *pool[T]) add(item T) (number uint32) {
	if n := len(p.free); n > 0 {
		number, p.free = p.free[n-1], p.free[:n-1]
	} else {
		p.used++
		number = p.used
		p.items.reach(number - 1)
	}
	*p.at(number) = item
	return number
}

func (p *pool[T]) at(number uint32) *T { return p.items.at(number - 1) }

func (p *pool[T]) remove(number uint32) {
	*p.at(number) = *new(T)
	p.free = append(p.free, number)
}
