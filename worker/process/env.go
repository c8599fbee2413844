package process

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dtask/dtask/internal/secretname"
)

// Values of a command that neither its worker nor its job sets.
const (
	DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	DefaultHome = "/"
	DefaultLang = "C.UTF-8"
)

// reservedPrefix is the prefix of names that only dtask sets.
const reservedPrefix = "DTASK_"

// Vars are the variables that describe an attempt to its command. The variables
// of the first group are always set; those of the second are omitted if the
// field has its zero value.
type Vars struct {
	JobID          string // DTASK_JOB_ID
	JobName        string // DTASK_JOB_NAME
	TaskID         string // DTASK_TASK_ID
	Attempt        uint32 // DTASK_ATTEMPT, from 1
	FencingToken   uint64 // DTASK_FENCING_TOKEN, decimal; increases with each attempt
	ExecutionID    string // DTASK_EXECUTION_ID: unique to this attempt
	IdempotencyKey string // DTASK_IDEMPOTENCY_KEY: the same for every attempt of the task
	Worker         string // DTASK_WORKER: the worker's name

	ArrayIndex    *uint64   // DTASK_ARRAY_INDEX, of an array task
	ArraySize     uint32    // DTASK_ARRAY_SIZE: items of the whole array
	Item          string    // DTASK_ITEM: a string unchanged, anything else as JSON
	Input         string    // DTASK_INPUT
	Output        string    // DTASK_OUTPUT
	Deadline      time.Time // DTASK_DEADLINE, RFC 3339 in UTC
	CheckpointDir string    // DTASK_CHECKPOINT_DIR
	ResultFile    string    // DTASK_RESULT_FILE: file for the command's result
	JobOutcome    string    // DTASK_JOB_OUTCOME, of a cleanup task: completed, failed or cancelled
	// ScheduledAt and ScheduledPrevious are DTASK_SCHEDULED_AT and DTASK_SCHEDULED_PREVIOUS,
	// RFC 3339 in UTC: the times that a run of a schedule and the one before it are for.
	ScheduledAt, ScheduledPrevious time.Time

	// Resources are DTASK_RESOURCES: what the attempt takes, in thousandths, by name. It is
	// written as cpu=2 memory=1073741824: sorted, in units, memory and disk in bytes.
	Resources map[string]int64

	GPUs []string // DTASK_GPUS: the GPUs that it may use, with commas between them

	SecretFiles map[string]string // DTASK_SECRET_NAME_FILE: paths by the name of the secret

	Login string // USER and LOGNAME; omitted if empty
	Path  string // PATH; default DefaultPath
	Home  string // HOME; default DefaultHome
	Lang  string // LANG; default DefaultLang
}

// An EnvError is returned for an invalid environment entry.
type EnvError struct {
	Name string // of the variable
	Err  error  // why
}

// Error names the variable and never its value, which may be a secret.
func (e *EnvError) Error() string { return fmt.Sprintf("environment variable %q: %v", e.Name, e.Err) }

// Unwrap returns the reason.
func (e *EnvError) Unwrap() error { return e.Err }

var errEnvName = errors.New("name must not be empty or contain =")

// Environ returns the complete environment of a command for [Spec.Env], sorted
// by name: PATH, HOME, LANG, USER and LOGNAME, overridden by the user's variables, overridden
// by the DTASK_ variables. User variables whose name starts with DTASK_ are
// omitted, even if v does not set them, so that a command can trust them. The
// error joins an [EnvError] for each invalid entry.
func Environ(v Vars, user map[string]string) ([]string, error) {
	env := map[string]string{
		"PATH": cmp.Or(v.Path, DefaultPath),
		"HOME": cmp.Or(v.Home, DefaultHome),
		"LANG": cmp.Or(v.Lang, DefaultLang),
	}
	if v.Login != "" {
		env["USER"], env["LOGNAME"] = v.Login, v.Login
	}
	for name, value := range user {
		if !strings.HasPrefix(name, reservedPrefix) {
			env[name] = value
		}
	}
	v.addTo(env)

	list := make([]string, 0, len(env))
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if err := checkEntry(name, env[name]); err != nil {
			faults = append(faults, &EnvError{Name: name, Err: err})
			continue
		}
		list = append(list, name+"="+env[name])
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return list, nil
}

// resourcesText writes amounts in thousandths by name, such as cpu=0.5 gpu=1.
func resourcesText(amounts map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		parts = append(parts, name+"="+strconv.FormatFloat(float64(amounts[name])/1000, 'f', -1, 64))
	}
	return strings.Join(parts, " ")
}

// addTo sets the DTASK_ variables.
func (v *Vars) addTo(env map[string]string) {
	env["DTASK_JOB_ID"] = v.JobID
	env["DTASK_JOB_NAME"] = v.JobName
	env["DTASK_TASK_ID"] = v.TaskID
	env["DTASK_ATTEMPT"] = strconv.FormatUint(uint64(v.Attempt), 10)
	env["DTASK_FENCING_TOKEN"] = strconv.FormatUint(v.FencingToken, 10)
	env["DTASK_EXECUTION_ID"] = v.ExecutionID
	env["DTASK_IDEMPOTENCY_KEY"] = v.IdempotencyKey
	env["DTASK_WORKER"] = v.Worker
	if v.ArrayIndex != nil {
		env["DTASK_ARRAY_INDEX"] = strconv.FormatUint(*v.ArrayIndex, 10)
		env["DTASK_ARRAY_SIZE"] = strconv.FormatUint(uint64(v.ArraySize), 10)
		env["DTASK_ITEM"] = v.Item // even if it is empty
	}
	if !v.Deadline.IsZero() {
		env["DTASK_DEADLINE"] = v.Deadline.UTC().Format(time.RFC3339Nano)
	}
	for name, at := range map[string]time.Time{"DTASK_SCHEDULED_AT": v.ScheduledAt, "DTASK_SCHEDULED_PREVIOUS": v.ScheduledPrevious} {
		if !at.IsZero() {
			env[name] = at.UTC().Format(time.RFC3339)
		}
	}
	for name, path := range v.SecretFiles {
		env[secretname.Variable(name)] = path
	}
	for name, value := range map[string]string{
		"DTASK_ITEM":           v.Item,
		"DTASK_RESOURCES":      resourcesText(v.Resources),
		"DTASK_GPUS":           strings.Join(v.GPUs, ","),
		"DTASK_INPUT":          v.Input,
		"DTASK_OUTPUT":         v.Output,
		"DTASK_CHECKPOINT_DIR": v.CheckpointDir,
		"DTASK_RESULT_FILE":    v.ResultFile,
		"DTASK_JOB_OUTCOME":    v.JobOutcome,
	} {
		if value != "" {
			env[name] = value
		}
	}
}

func checkEntry(name, value string) error {
	switch {
	case name == "" || strings.Contains(name, "="):
		return errEnvName
	case strings.ContainsRune(name, 0) || strings.ContainsRune(value, 0):
		return errNUL
	}
	return nil
}
