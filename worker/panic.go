package worker

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

// maxPanicText is how much of an error text the value of a panic may take, in bytes.
// The rest is for the stack.
const maxPanicText = maxError / 2

// panicError returns the error of a handler that panicked with a value: the value, and
// on further lines the calls that led to the panic, innermost first. It is called by the
// deferred function that recovered.
func panicError(cause any) error {
	text := clip(fmt.Sprintf("panic: %v", cause), maxPanicText)
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for panicked, more := false, true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked = true
		case !panicked || strings.HasPrefix(f.Function, "runtime."):
		case strings.HasSuffix(f.Function, ".(*Worker).call"):
			return errors.New(text)
		default:
			name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
			text += fmt.Sprintf("\n%s %s:%d", name, filepath.Base(f.File), f.Line)
		}
	}
	return errors.New(text)
}
