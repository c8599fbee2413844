package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/dtask/dtask/test/cluster"
	"github.com/dtask/dtask/test/cluster/clustertest"
)

// twoGPUs starts a cluster with a worker that offers two GPUs. Nothing uses them.
func twoGPUs(t *testing.T) *cluster.Cluster {
	t.Helper()
	c := clustertest.Start(t, cluster.Config{Coordinators: 1})
	clustertest.Must(t, c.AddWorker("w1", "--slots=8", "--gpus=0,1").Start(t.Context()))
	clustertest.Must(t, c.AwaitWorker(t.Context(), "w1", "up"))
	return c
}

func TestTheExampleOfGPUsNamesThem(t *testing.T) {
	t.Parallel()
	c := twoGPUs(t)
	text, err := os.ReadFile("../../examples/gpu.yaml")
	clustertest.Must(t, err)
	id := submitText(t, c, string(text))
	_, err = c.AwaitEnd(t.Context(), id, guard)
	clustertest.Must(t, err)
	for task, want := range map[string]string{"train": "has GPU", "evaluate": "has half of GPU"} {
		for i := 1; i <= 4; i++ {
			got := c.Run(t.Context(), "logs", fmt.Sprintf("%s/%s[%d]", id, task, i)).Stdout
			if !regexp.MustCompile(fmt.Sprintf(`model %d %s [01]\b`, i, want)).MatchString(got) {
				t.Errorf("%s[%d] printed %q", task, i, got)
			}
		}
	}
}

// Each whole GPU is a directory that only one task can make. Tasks that have a part of one write
// a file first, and then look for that directory: one of the two always sees the other.
const exclusiveGPUs = `
job:
  name: exclusive
  defaults: {retry: {max: 0}}
  env: {CUDA_DEVICE_ORDER: chosen}
  tasks:
    - id: whole
      array: {range: 1-20}
      resources: {gpu: 1}
      run: |
        cd DIR; mkdir "whole-$CUDA_VISIBLE_DEVICES"
        ls | grep "^part-$CUDA_VISIBLE_DEVICES-" && exit 1
        sleep 0.05; rmdir "whole-$CUDA_VISIBLE_DEVICES"
    - id: part
      array: {range: 1-40}
      resources: {gpu: 0.4}
      run: |
        cd DIR; mine="part-$CUDA_VISIBLE_DEVICES-$DTASK_ARRAY_INDEX"; touch "$mine"
        test ! -e "whole-$CUDA_VISIBLE_DEVICES"
        sleep 0.0$((DTASK_ARRAY_INDEX % 10)); rm "$mine"
    - id: both
      needs: [whole, part]
      resources: {gpu: 2}
      run: echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER" > DIR/both
    - id: none
      run: echo "${CUDA_VISIBLE_DEVICES-not set} ${DTASK_GPUS-not set}" > DIR/none
`

func TestAWholeGPUIsOfOneTaskAlone(t *testing.T) {
	t.Parallel()
	c := twoGPUs(t)
	dir := t.TempDir()
	id := submitText(t, c, regexp.MustCompile("DIR").ReplaceAllLiteralString(exclusiveGPUs, dir))
	job, err := c.AwaitEnd(t.Context(), id, guard)
	clustertest.Must(t, err)
	if job.State != "completed" {
		t.Errorf("the job is %s: %s", job.State, c.Run(t.Context(), "status", id).Stdout)
	}
	for file, want := range map[string]string{"both": "0,1 chosen\n", "none": "not set not set\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", file, got, err, want)
		}
	}
}
