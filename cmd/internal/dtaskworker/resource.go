package dtaskworker

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
)

// units are the suffixes of amounts, as in job files.
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

// parseResources parses amounts such as 2, 0.5 or 8GiB into thousandths.
func parseResources(given map[string]string) (map[string]int64, error) {
	amounts := map[string]int64{}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		amount, err := thousandths(given[name])
		if err != nil {
			problems = append(problems, fmt.Errorf("invalid --resource %s=%s: %w", name, given[name], err))
			continue
		}
		amounts[name] = amount
	}
	return amounts, errors.Join(problems...)
}

// thousandths parses a number with an optional unit, without rounding errors.
func thousandths(text string) (int64, error) {
	number, factor := text, int64(1)
	for _, unit := range units {
		if before, found := strings.CutSuffix(text, unit.suffix); found {
			number, factor = strings.TrimSpace(before), unit.factor
			break
		}
	}
	value, ok := new(big.Rat), len(number) <= 32 && strings.Trim(number, "0123456789.") == ""
	if ok { // checked first: an exponent could make the number huge
		value, ok = value.SetString(number)
	}
	if !ok {
		return 0, errors.New("must be an amount such as 2, 0.5 or 8GiB")
	}
	value.Mul(value, new(big.Rat).SetInt64(factor)).Mul(value, new(big.Rat).SetInt64(1000))
	whole := new(big.Int).Quo(value.Num(), value.Denom())
	if !whole.IsInt64() || whole.Int64() == math.MaxInt64 {
		return 0, errors.New("too large")
	}
	return whole.Int64(), nil
}
