package spec

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dtask/dtask/internal/array"
	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// Rules about single values. Job files and decoded jobs use the same ones.

// problem is a fault without a location. The zero value means no problem.
type problem struct{ what, do string }

func (p problem) bad() bool { return p.what != "" }

// Error lets exported parsers return a problem.
func (p problem) Error() string { return p.what + "; " + p.do }

// quote quotes a value for a message, shortened to keep messages on one line.
func quote(s string) string {
	const most = 80
	if utf8.RuneCountInString(s) > most {
		return strconv.Quote(string([]rune(s)[:most])) + "…"
	}
	return strconv.Quote(s)
}

// nameProblem checks job names, handler types and label names.
func nameProblem(s string) problem {
	const do = "use 1–63 of a–z, A–Z, 0–9, -, _ and ."
	if p := lengthProblem(s, MaxNameLength, do); p.bad() {
		return p
	}
	for _, c := range s {
		if !isWordRune(c) && c != '-' && c != '.' {
			return problem{fmt.Sprintf("%s contains the character %q", quote(s), c), do}
		}
	}
	return dotsProblem(s)
}

// CheckName checks the name of a job.
func CheckName(s string) error { return asError(nameProblem(s)) }

// CheckLabel checks a label of a job.
func CheckLabel(name, value string) error { return asError(labelProblem(name, value)) }

// asError returns nil for no problem.
func asError(p problem) error {
	if p.bad() {
		return p
	}
	return nil
}

// idProblem checks task IDs. They may have more characters than names, but
// must be unambiguous in JOB/TASK, in array[17] and within messages.
func idProblem(s string) problem {
	const do = "an id is 1–128 characters without white space, / \\ [ or ]"
	if p := lengthProblem(s, MaxIDLength, do); p.bad() {
		return p
	}
	if array.Opens(s) {
		return problem{"has an expression, which is not possible here", "the tasks of an array are named by its id and their items, as in map[17]"}
	}
	for _, c := range s {
		if isWordRune(c) {
			continue // most are
		}
		if c == utf8.RuneError || !unicode.IsPrint(c) || unicode.IsSpace(c) || strings.ContainsRune(`/\[]`, c) {
			return problem{fmt.Sprintf("%s contains the character %q", quote(s), c), do}
		}
	}
	return dotsProblem(s)
}

// lengthProblem checks that a name has 1 to most characters.
func lengthProblem(s string, most int, do string) problem {
	if s == "" {
		return problem{"is empty", do}
	}
	if len(s) <= most { // bytes, at least as many as characters
		return problem{}
	}
	if n := utf8.RuneCountInString(s); n > most {
		return problem{fmt.Sprintf("has %d characters", n), do}
	}
	return problem{}
}

// dotsProblem keeps names usable as directory names.
func dotsProblem(s string) problem {
	if s == "." || s == ".." {
		return problem{fmt.Sprintf("invalid name %s", quote(s)), "add a letter or a digit"}
	}
	return problem{}
}

func isWordRune(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

func ownerProblem(s string) problem {
	if s == "" {
		return problem{"is empty", "leave it out, or name the owner"}
	}
	if len(s) > MaxOwnerBytes {
		return problem{fmt.Sprintf("has %d bytes", len(s)), "at most 63"}
	}
	return printableProblem(s)
}

// CheckNamespace checks the namespace of a job.
func CheckNamespace(s string) error { return asError(namespaceProblem(s)) }

// namespaceProblem checks namespaces. Package internal/auth has the same rule for the
// namespaces of identities: coordinator/api tests that both agree.
func namespaceProblem(s string) problem {
	const do = "use 1–63 of a–z, 0–9 and -, neither beginning nor ending with -"
	if p := lengthProblem(s, MaxNameLength, do); p.bad() {
		return p
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return problem{fmt.Sprintf("%s contains the character %q", quote(s), c), do}
		}
	}
	if s[0] == '-' || s[len(s)-1] == '-' {
		return problem{"invalid namespace " + quote(s), do}
	}
	return problem{}
}

func printableProblem(s string) problem {
	for _, c := range s {
		if c == utf8.RuneError || !unicode.IsPrint(c) {
			return problem{fmt.Sprintf("%s contains the character %q", quote(s), c), "use printable characters only"}
		}
	}
	return problem{}
}

// textProblem checks texts that are passed to an operating system.
func textProblem(s string) problem {
	if strings.IndexByte(s, 0) >= 0 {
		return problem{"contains a NUL byte", "remove it"}
	}
	if !utf8.ValidString(s) {
		return problem{"is not valid UTF-8", "write it in UTF-8"}
	}
	return problem{}
}

func pathProblem(s string) problem {
	if s == "" {
		return problem{"is empty", "write a path or a URL, or leave it out"}
	}
	if len(s) > MaxPathBytes {
		return problem{fmt.Sprintf("has %s", bytesText(len(s))), fmt.Sprintf("at most %s", bytesText(MaxPathBytes))}
	}
	return textProblem(s)
}

// CheckWebhook checks the URL of a webhook. The error never contains a
// password.
func CheckWebhook(s string) error {
	return asError(webhookProblem(s))
}

// webhookProblem never shows a URL that may contain a password.
func webhookProblem(s string) problem {
	const do = "write an http or https URL, such as https://example.org/ended"
	if s == "" {
		return problem{"is empty", "leave it out, or " + do}
	}
	if len(s) > MaxWebhookBytes {
		return problem{fmt.Sprintf("has %s", bytesText(len(s))), fmt.Sprintf("at most %s", bytesText(MaxWebhookBytes))}
	}
	if p := printableProblem(s); p.bad() {
		return p
	}
	u, err := url.Parse(s)
	if err != nil {
		return problem{"must be a valid URL", do}
	}
	switch {
	case u.User != nil:
		return problem{"contains a user or a password", "leave them out; requests are signed instead (docs/webhooks.md)"}
	case u.Scheme != "http" && u.Scheme != "https":
		return problem{fmt.Sprintf("invalid URL %s", quote(s)), do}
	case u.Hostname() == "" || u.Opaque != "":
		return problem{fmt.Sprintf("invalid URL %s: no host", quote(s)), do}
	case strings.Contains(s, "#"):
		return problem{fmt.Sprintf("%s must have no fragment", quote(s)), "leave out # and what follows"}
	}
	return problem{}
}

func envNameProblem(s string) problem {
	const do = "use letters, digits and _, not beginning with a digit"
	if s == "" {
		return problem{"must not have an empty variable name", do}
	}
	for _, c := range s {
		if !isWordRune(c) {
			return problem{fmt.Sprintf("invalid variable name %s", quote(s)), do}
		}
	}
	if isDigit(s[0]) {
		return problem{fmt.Sprintf("invalid variable name %s", quote(s)), do}
	}
	if strings.HasPrefix(s, "DTASK_") {
		return problem{fmt.Sprintf("reserved variable %s", quote(s)), "choose a name without the prefix DTASK_"}
	}
	return problem{}
}

func envSizeProblem(job, task map[string]string) problem {
	n := envSize(job) + envSize(task)
	if n <= MaxEnvBytes {
		return problem{}
	}
	return problem{
		fmt.Sprintf("the environment has %s together with the job's", bytesText(n)),
		fmt.Sprintf("at most %s; put large values into files or the payload", bytesText(MaxEnvBytes)),
	}
}

func envSize(env map[string]string) (n int) {
	for name, value := range env {
		n += len(name) + len(value) + 2
	}
	return n
}

// labelNameProblem checks names of labels and resources.
func labelNameProblem(s string) problem {
	if p := nameProblem(strings.ReplaceAll(s, "/", "_")); p.bad() {
		return problem{fmt.Sprintf("invalid name %s", quote(s)), "use 1–63 of a–z, A–Z, 0–9, -, _, . and /"}
	}
	return problem{}
}

// reservedLabels is the prefix of labels that coordinators set: no worker has one of its own.
const reservedLabels = "dtask."

// workerLabelProblem checks names of labels of workers, which tasks and queues require.
func workerLabelProblem(s string) problem {
	if p := reservedLabelProblem(s); p.bad() {
		return p
	}
	return labelNameProblem(s)
}

func reservedLabelProblem(s string) problem {
	if !strings.HasPrefix(s, reservedLabels) {
		return problem{}
	}
	return problem{fmt.Sprintf("reserved name %s", quote(s)), fmt.Sprintf("workers can't declare names that begin with %s; a task has the fields type and secrets", reservedLabels)}
}

func labelValueProblem(s string) problem {
	if len(s) > MaxValueBytes {
		return problem{fmt.Sprintf("has %d bytes", len(s)), fmt.Sprintf("at most %d", MaxValueBytes)}
	}
	return printableProblem(s)
}

func commandProblem(args []string) problem {
	if len(args) == 0 {
		return problem{"is empty", "write the program and its arguments: [echo, hello]"}
	}
	if args[0] == "" {
		return problem{"has an empty program name", "write the program first: [echo, hello]"}
	}
	n := 0
	for _, a := range args {
		if p := textProblem(a); p.bad() {
			return p
		}
		n += len(a) + 1
	}
	return commandSizeProblem(n)
}

func runProblem(s string) problem {
	if strings.TrimSpace(s) == "" {
		return problem{"is empty", "write the shell text to run"}
	}
	if p := textProblem(s); p.bad() {
		return p
	}
	return commandSizeProblem(len(s))
}

func commandSizeProblem(n int) problem {
	if n <= MaxCommandBytes {
		return problem{}
	}
	return problem{
		fmt.Sprintf("has %s", bytesText(n)),
		fmt.Sprintf("at most %s; put the rest into a file or the payload", bytesText(MaxCommandBytes)),
	}
}

func reuseKeyProblem(s string) problem {
	if s == "" || len(s) > MaxReuseKeyBytes {
		return problem{fmt.Sprintf("has %d bytes", len(s)), "write 1 to 256; put a digest of what is longer"}
	}
	return textProblem(s)
}

// reuseDurationProblem checks how long a result is remembered, in
// milliseconds.
func reuseDurationProblem(ms int64) problem {
	if ms > 0 && ms <= MaxReuse.Milliseconds() {
		return problem{}
	}
	return problem{"is out of range", "at most 90d"}
}

// reuseProblem checks the policy of tasks that are declared pure.
func reuseProblem(execution dtaskv1.Execution, finally bool) problem {
	switch {
	case execution == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE:
		return problem{"must not be set with execution: at-most-once", "leave out reuse, or execution: at-most-once"}
	case finally:
		return problem{"must not be set for cleanup tasks", "leave out reuse, or finally: true"}
	}
	return problem{}
}

// preemptibleProblem checks the policy of tasks that give their place to urgent ones.
func preemptibleProblem(execution dtaskv1.Execution, finally bool) problem {
	switch {
	case execution == dtaskv1.Execution_EXECUTION_AT_MOST_ONCE:
		return problem{"must not be set with execution: at-most-once", "write preemptible: false; an attempt that has started can't be repeated"}
	case finally:
		return problem{"must not be set for cleanup tasks", "write preemptible: false, or leave out finally: true"}
	}
	return problem{}
}

func payloadProblem(n, most int) problem {
	if n <= most {
		return problem{}
	}
	return problem{fmt.Sprintf("has %s", bytesText(n)), fmt.Sprintf("at most %s; put it into a file and name that as input", bytesText(most))}
}

var plainClasses = []string{"oom", "timeout", "lost", "start"}

// classForms are suggested for an unknown failure class.
var classForms = append([]string{"exit:N", "exit:A-B", "signal:NAME", "error:Name"}, plainClasses...)

var signalNames = []string{
	"ABRT", "ALRM", "BUS", "CHLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "KILL", "PIPE", "PROF", "PWR", "QUIT",
	"SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
}

// classProblem checks one entry of retry.on and retry.except.
func classProblem(s string) problem {
	kind, value, typed := strings.Cut(s, ":")
	if !typed {
		if slices.Contains(plainClasses, s) {
			return problem{}
		}
		return problem{fmt.Sprintf("unknown failure class %s", quote(s)), didYouMean(s, classForms)}
	}
	switch kind {
	case "exit":
		low, high, ranged := strings.Cut(value, "-")
		a, okLow := exitCode(low)
		b, okHigh := a, true
		if ranged {
			b, okHigh = exitCode(high)
		}
		if !okLow || !okHigh || a > b {
			return problem{fmt.Sprintf("invalid exit code in %s", quote(s)), "write exit:N or exit:A-B with codes from 1 to 255"}
		}
	case "signal":
		if slices.Contains(signalNames, value) {
			return problem{}
		}
		bare := strings.TrimPrefix(strings.ToUpper(value), "SIG")
		return problem{fmt.Sprintf("unknown signal in %s", quote(s)), didYouMean("signal:"+bare, prefixed("signal:", signalNames))}
	case "error":
		if nameProblem(value).bad() {
			return problem{fmt.Sprintf("invalid error name in %s", quote(s)), "write error:Name with 1–63 of a–z, A–Z, 0–9, -, _ and ."}
		}
	default:
		return problem{fmt.Sprintf("unknown failure class %s", quote(s)), didYouMean(s, classForms)}
	}
	return problem{}
}

func exitCode(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && n <= 255 && s == strconv.Itoa(n)
}

// prefixed returns each name with a prefix.
func prefixed(prefix string, names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = prefix + n
	}
	return out
}

// The keywords of the format and their values, in the order in which messages
// list them.

type keyword[T any] struct {
	text string
	is   T
}

var priorities = []keyword[dtaskv1.Priority]{
	{"low", dtaskv1.Priority_PRIORITY_LOW},
	{"normal", dtaskv1.Priority_PRIORITY_NORMAL},
	{"high", dtaskv1.Priority_PRIORITY_HIGH},
	{"urgent", dtaskv1.Priority_PRIORITY_URGENT},
}

var executions = []keyword[dtaskv1.Execution]{
	{"at-least-once", dtaskv1.Execution_EXECUTION_AT_LEAST_ONCE},
	{"at-most-once", dtaskv1.Execution_EXECUTION_AT_MOST_ONCE},
}

var onFailures = []keyword[dtaskv1.OnFailure]{
	{"stop", dtaskv1.OnFailure_ON_FAILURE_STOP},
	{"continue", dtaskv1.OnFailure_ON_FAILURE_CONTINUE},
}

// parseKeyword returns the value of a keyword.
func parseKeyword[T any](words []keyword[T], s string) (is T, p problem) {
	texts := make([]string, len(words))
	for i, w := range words {
		if w.text == s {
			return w.is, problem{}
		}
		texts[i] = w.text
	}
	return is, problem{fmt.Sprintf("unknown value %s", quote(s)), didYouMean(s, texts)}
}

// priority returns the value of a priority's name, or of its number from 0 to 3.
func priority(s string) (is dtaskv1.Priority, p problem) {
	if len(s) == 1 && '0' <= s[0] && int(s[0]-'0') < len(priorities) {
		return priorities[s[0]-'0'].is, problem{}
	}
	if _, err := strconv.Atoi(s); err == nil {
		return is, problem{"unknown priority " + s, "write low, normal, high or urgent, or 0 to 3"}
	}
	return parseKeyword(priorities, s)
}

// ParsePriority parses low, normal, high or urgent, or 0 to 3 in this order.
func ParsePriority(s string) (dtaskv1.Priority, error) {
	is, p := priority(s)
	if p.bad() {
		return is, p
	}
	return is, nil
}
