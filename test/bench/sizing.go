package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/test/cluster"
)

const (
	machineSlots    = 4  // of a worker
	tasksPerMachine = 10 // per second, under load
	mega            = 1 << 20
)

// machines are the numbers of workers that docs/tuning.md has a plan for.
var machines = []int{3, 50, 500}

// sizing measures what each part needs: the coordinators of clusters of several sizes,
// a worker, dtaskctl, and the sizes of what is installed.
func sizing(ctx context.Context, b *bench) error {
	for _, n := range machines {
		if b.quick && n > b.idle {
			continue
		}
		if err := b.sizeOfCoordinators(ctx, n); err != nil {
			return err
		}
	}
	if err := b.sizeOfOthers(ctx); err != nil {
		return err
	}
	return b.installed(ctx)
}

// sizeOfCoordinators measures coordinators with n workers on connections of their own, at
// rest and under load.
func (b *bench) sizeOfCoordinators(ctx context.Context, n int) error {
	rate := n * tasksPerMachine
	rest := fleet{workers: n, slots: machineSlots, direct: true, idle: b.during}
	busy := fleet{workers: n, slots: machineSlots, direct: true, rate: rate, perJob: n, tasks: int(float64(rate) * b.during.Seconds())}
	return with(ctx, cluster.Config{}, func(c *cluster.Cluster) error {
		atRest, err := b.load(ctx, c, rest)
		if err != nil {
			return err
		}
		underLoad, err := b.load(ctx, c, busy)
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%d machines", n)
		b.coordinatorRows(what+", idle", fmt.Sprintf("%s, for %v", rest, b.during), atRest.Idle)
		b.coordinatorRows(what+", loaded", fmt.Sprintf("%d no-op tasks/s of 32 B in jobs of %d, for %v", rate, n, b.during), underLoad.Work)
		return nil
	})
}

// coordinatorRows adds the memory and CPU of a leader and of a follower.
func (b *bench) coordinatorRows(what, setting string, costs []coordinatorCost) {
	leader := leaderOf(costs)
	others := max(1, float64(len(costs)-1))
	b.table.add("dtaskd, leader of "+what+": memory", "MB", setting, leader.Resident)
	b.table.add("dtaskd, leader of "+what+": CPU", "cores", "", leader.Cores)
	b.table.add("dtaskd, follower of "+what+": memory", "MB", "mean", (ofAll(costs, coordinatorCost.resident)-leader.Resident)/others)
	b.table.add("dtaskd, follower of "+what+": CPU", "cores", "mean", (ofAll(costs, coordinatorCost.cores)-leader.Cores)/others)
}

// sizeOfOthers measures a worker, at rest and while it runs commands, and dtaskctl.
func (b *bench) sizeOfOthers(ctx context.Context) error {
	return with(ctx, cluster.Config{Workers: 1, Slots: machineSlots}, func(c *cluster.Cluster) error {
		worker := c.Workers()[0]
		cost, err := usedBy(worker.Pid(), func() error { return cluster.Pause(ctx, b.during) })
		if err != nil {
			return err
		}
		setting := fmt.Sprintf("%d slots, for %v", machineSlots, b.during)
		b.table.add("dtask-worker, idle: memory", "MB", setting, cost.resident)
		b.table.add("dtask-worker, idle: CPU", "cores", "", cost.cores())

		load := commandLoad{argv: []string{"/bin/true"}}
		path := filepath.Join(c.Dir, "commands.yaml")
		if err := os.WriteFile(path, []byte(commandJob(load, b.commands)), 0o600); err != nil {
			return fmt.Errorf("writing job file: %w", err)
		}
		cost, err = usedBy(worker.Pid(), func() error {
			return c.Run(ctx, "--timeout", commandLimit.String(), "submit", path, "--wait", "-q").Err()
		})
		if err != nil {
			return err
		}
		setting = fmt.Sprintf("%d commands /bin/true on %d slots, %.0f per second; without the commands and their supervisors",
			b.commands, machineSlots, float64(b.commands)/cost.took.Seconds())
		b.table.add("dtask-worker, loaded: memory", "MB", setting, cost.resident)
		b.table.add("dtask-worker, loaded: CPU", "cores", "", cost.cores())

		for _, args := range [][]string{{"cluster", "status"}, {"list"}, {"submit", "--type", "noop", "--wait"}} {
			if err := b.sizeOfCtl(ctx, c, args); err != nil {
				return err
			}
		}
		return nil
	})
}

// A use is what a process used while something happened.
type use struct {
	resident  float64 // MB, at the end
	cpu, took time.Duration
}

func (u use) cores() float64 { return u.cpu.Seconds() / u.took.Seconds() }

// usedBy measures a process while f runs.
func usedBy(pid int, f func() error) (u use, err error) {
	before, err := cpuOf(pid)
	if err != nil {
		return u, err
	}
	began := time.Now()
	if err := f(); err != nil {
		return u, err
	}
	u.took = time.Since(began)
	after, err := cpuOf(pid)
	if err != nil {
		return u, err
	}
	u.cpu = after - before
	u.resident, err = residentOf(pid)
	return u, err
}

// sizeOfCtl measures a run of dtaskctl.
func (b *bench) sizeOfCtl(ctx context.Context, c *cluster.Cluster, args []string) error {
	var memory, cpu []float64
	for range b.rounds {
		cmd := exec.CommandContext(ctx, c.Programs.Path("dtaskctl"), args...)
		cmd.Env = append([]string{"HOME=" + c.Dir, "DTASK_ADDR=" + strings.Join(c.Addrs, ",")}, c.Env...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		peak, err := runAndWatch(cmd)
		if err != nil {
			return fmt.Errorf("running dtaskctl %s: %w\n%s", strings.Join(args, " "), err, &out)
		}
		memory = append(memory, peak)
		cpu = append(cpu, float64((cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Microseconds())/1000)
	}
	what := "dtaskctl " + strings.Join(args, " ")
	b.table.add(what+": memory", "MB", fmt.Sprintf("peak, seen every %v", watchInterval), memory...)
	b.table.add(what+": CPU", "ms", "", cpu...)
	return nil
}

// watchInterval is how often the memory of a process that ends soon is read.
const watchInterval = time.Millisecond

// runAndWatch runs a command and returns the most resident memory that it was seen with, in
// MB.
func runAndWatch(cmd *exec.Cmd) (peak float64, err error) {
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting: %w", err)
	}
	ended := make(chan error, 1) // size 1: the result
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		if seen, err := peakOf(cmd.Process.Pid); err == nil { // else it has ended
			peak = max(peak, seen)
		}
		select {
		case err := <-ended:
			return peak, err //nolint:wrapcheck // the caller names the command
		case <-tick.C:
		}
	}
}

// installed measures the programs, and the container image if there is one.
func (b *bench) installed(ctx context.Context) error {
	programs, err := cluster.Find()
	if err != nil {
		return err //nolint:wrapcheck // says what is missing
	}
	for _, name := range []string{"dtaskd", "dtask-worker", "dtaskctl"} {
		info, err := os.Stat(programs.Path(name))
		if err != nil {
			return fmt.Errorf("measuring programs: %w", err)
		}
		b.table.add(name+": size of the program", "MB", "static, stripped, by make build", float64(info.Size())/mega)
	}
	out, err := exec.CommandContext(ctx, "docker", "image", "inspect", "-f", "{{.Size}}", "dtask:latest").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "        left out: no image was built; make image builds it")
		return nil //nolint:nilerr // the image is optional
	}
	size, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return fmt.Errorf("measuring the image: %w", err)
	}
	b.table.add("dtask:latest: size of the image", "MB", "all three programs, by make image", size/mega)
	return nil
}
