package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// cost is the resource use of one coordinator during a measurement.
type cost struct {
	Host       string  `json:"http"`
	Leader     bool    `json:"leader"`
	CPUSeconds float64 `json:"cpu_s"`
	Cores      float64 `json:"cores"`
	PerTask    float64 `json:"cpu_us_per_task,omitempty"`
	Resident   float64 `json:"resident_mb"`
	Goroutines float64 `json:"goroutines"`
}

// costing measures the resource use of processes during f.
func costing(ctx context.Context, hosts []string, into *[]cost, f func() error) error {
	before, err := read(ctx, hosts)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := f(); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	after, err := read(context.WithoutCancel(ctx), hosts)
	if err != nil {
		return err
	}
	for i := range after {
		after[i].CPUSeconds -= before[i].CPUSeconds
		after[i].Cores = after[i].CPUSeconds / took
	}
	*into = after
	return nil
}

func read(ctx context.Context, hosts []string) ([]cost, error) {
	var list []cost
	for _, host := range hosts {
		c, err := readOne(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("reading metrics of %s: %w", host, err)
		}
		list = append(list, c)
	}
	return list, nil
}

func readOne(ctx context.Context, host string) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/metrics", nil)
	if err != nil {
		return cost{}, err //nolint:wrapcheck // wrapped by the caller
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return cost{}, err //nolint:wrapcheck // as above
	}
	defer func() { _ = resp.Body.Close() }() // read already
	values, err := samples(resp.Body)
	if err != nil {
		return cost{}, err
	}
	return cost{
		Host: host, Leader: values["dtask_leader"] == 1, CPUSeconds: values["process_cpu_seconds_total"],
		Resident: values["process_resident_memory_bytes"] / (1 << 20), Goroutines: values["go_goroutines"],
	}, nil
}

// samples parses the metrics without labels.
func samples(r io.Reader) (map[string]float64, error) {
	values := make(map[string]float64)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(text, 64); err == nil && !strings.ContainsAny(name, "#{") {
			values[name] = v
		}
	}
	return values, lines.Err() //nolint:wrapcheck // wrapped by the caller
}
