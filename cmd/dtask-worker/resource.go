package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
)

// units are what an amount may end in, as in job files.
var units = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// parseResources turns amounts such as 2, 0.5 or 8GiB into thousandths.
func parseResources(given map[string]string) (map[string]int64, error) {
	amounts := map[string]int64{}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		amount, err := thousandths(given[name])
		if err != nil {
			faults = append(faults, fmt.Errorf("--resource: %s: %w", name, err))
			continue
		}
		amounts[name] = amount
	}
	return amounts, errors.Join(faults...)
}

// thousandths reads a number with an optional unit, exactly.
func thousandths(text string) (int64, error) {
	number, factor := text, int64(1)
	for _, unit := range units {
		if before, found := strings.CutSuffix(text, unit.suffix); found {
			number, factor = strings.TrimSpace(before), unit.factor
			break
		}
	}
	if number == "" || len(number) > 32 || strings.Trim(number, "0123456789.") != "" {
		return 0, fmt.Errorf("%q is no amount such as 2, 0.5 or 8GiB", text)
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, fmt.Errorf("%q is no amount such as 2, 0.5 or 8GiB", text)
	}
	value.Mul(value, new(big.Rat).SetInt64(factor)).Mul(value, new(big.Rat).SetInt64(1000))
	whole := new(big.Int).Quo(value.Num(), value.Denom())
	if !whole.IsInt64() || whole.Int64() == math.MaxInt64 {
		return 0, fmt.Errorf("%q is too much", text)
	}
	return whole.Int64(), nil
}
