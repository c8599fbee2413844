package metrics

import (
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dtask/dtask/worker"
)

// A statistic without a metric would be found only when it is missing.
func TestEveryStatisticIsAMetric(t *testing.T) {
	t.Parallel()
	var s worker.Stats
	for i, v := 0, reflect.ValueOf(&s).Elem(); i < v.NumField(); i++ {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Uint64:
			f.SetUint(uint64(100 + i))
		case reflect.Int, reflect.Int64:
			f.SetInt(int64(100 + i))
		default:
			t.Fatalf("%s is a %s", v.Type().Field(i).Name, f.Kind())
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(Collector(func() worker.Stats { return s }))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[float64]bool)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			seen[m.GetGauge().GetValue()+m.GetCounter().GetValue()] = true
		}
	}
	if want := reflect.TypeOf(s).NumField(); len(seen) != want {
		t.Errorf("got %d values %v, want %d", len(seen), seen, want)
	}
}
