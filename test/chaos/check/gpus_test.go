package check

import (
	"slices"
	"testing"
)

func TestAGPUThatIsGivenTwiceIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want []Kind
		set  func(first, second *[]string, amounts *[2]int64, r *Record)
	}{
		"one after the other": {nil, func(_, _ *[]string, _ *[2]int64, r *Record) { r.Lines[2].At = 55 }},
		"at the same time":    {[]Kind{Unexpected}, func(_, _ *[]string, _ *[2]int64, _ *Record) {}},
		"two GPUs":            {nil, func(_, second *[]string, _ *[2]int64, _ *Record) { *second = []string{"1"} }},
		"two processes":       {nil, func(_, _ *[]string, _ *[2]int64, r *Record) { r.Lines[2].Pid, r.Lines[3].Pid = 2, 2 }},
		"two halves":          {nil, func(_, _ *[]string, amounts *[2]int64, _ *Record) { *amounts = [2]int64{500, 500} }},
		"three quarters and a half": {[]Kind{Unexpected}, func(_, _ *[]string, amounts *[2]int64, _ *Record) {
			*amounts = [2]int64{750, 500}
		}},
		"a half beside one and a half": {nil, func(first, _ *[]string, amounts *[2]int64, _ *Record) {
			*first, *amounts = []string{"1", "0"}, [2]int64{1500, 500}
		}},
		"a half beside the whole one of one and a half": {[]Kind{Unexpected}, func(first, _ *[]string, amounts *[2]int64, _ *Record) {
			*first, *amounts = []string{"0", "1"}, [2]int64{1500, 500}
		}},
		"fewer than requested": {[]Kind{Unexpected}, func(first, second *[]string, amounts *[2]int64, _ *Record) {
			*first, *second, *amounts = []string{"1"}, nil, [2]int64{1000, 1000}
		}},
	} {
		r := story()
		r.Plans[0].Tasks[1].After = nil
		r.Lines[1].At = 55 // a ends after b has started
		gpus, amounts := [2][]string{{"0"}, {"0"}}, [2]int64{1000, 1000}
		c.set(&gpus[0], &gpus[1], &amounts, &r)
		for i := range gpus {
			r.Plans[0].Tasks[i].GPUs = float64(amounts[i]) / wholeGPU
			r.Lines[2*i].GPUs, r.Lines[2*i].GPUAmount = gpus[i], amounts[i]
		}
		var got []Kind
		faults := Account(r)
		for _, f := range faults {
			got = append(got, f.Kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, faults, c.want)
		}
		if n := CountScheduled(r).GPUs; n == 0 {
			t.Errorf("%s: nothing was compared", name)
		}
	}
}
