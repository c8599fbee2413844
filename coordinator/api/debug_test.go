package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	dtaskv1 "github.com/dtask/dtask/proto/dtask/v1"
)

// debugBundle receives the files of a call of Debug, by name.
func debugBundle(ctx context.Context, r *replica, profileMS int64) (map[string][]byte, error) {
	stream, err := r.admin.Debug(ctx, &dtaskv1.DebugRequest{ProfileMs: profileMS})
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return files, err
		}
		if got.GetServerId() != "n1" {
			return files, fmt.Errorf("from %q", got.GetServerId())
		}
		files[got.GetFile()] = append(files[got.GetFile()], got.GetData()...)
	}
}

// A bundle has whole files, empty ones, the beginning of files that are too large, and the
// reason why a file is not complete. A replica needs no leader for it.
func TestADebugBundleHasAllFilesAndWhyOneIsIncomplete(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("0123456789"), maxDebugFile/10+1)
	var profiled time.Duration
	r := setup(t, func(c *Config) {
		c.Debug = func(_ context.Context, profile time.Duration, file DebugFile) error {
			profiled = profile
			return errors.Join(
				file("empty", func(io.Writer) error { return nil }),
				file("large", func(w io.Writer) error { _, err := w.Write(large); return err }),
				file("whole", func(w io.Writer) error { _, err := w.Write(large[:1<<20]); return err }),
				file("broken", func(w io.Writer) error {
					_, err := w.Write([]byte("half"))
					return errors.Join(err, errors.New("reading: the disk is gone"))
				}),
			)
		}
	})
	r.leading(false)
	files, err := debugBundle(t.Context(), r, 1500)
	if err != nil || profiled != 1500*time.Millisecond {
		t.Fatalf("%v, a profile of %s", err, profiled)
	}
	names := slices.Sorted(maps.Keys(files))
	if want := []string{"broken", "broken.error", "empty", "large", "large.error", "whole"}; !slices.Equal(names, want) {
		t.Errorf("got files %v, want %v", names, want)
	}
	if !bytes.Equal(files["large"], large[:maxDebugFile]) || !bytes.Equal(files["whole"], large[:1<<20]) {
		t.Errorf("got %d and %d bytes", len(files["large"]), len(files["whole"]))
	}
	if string(files["broken"]) != "half" || string(files["broken.error"]) != "reading: the disk is gone\n" || string(files["large.error"]) != errCut.Error()+"\n" {
		t.Errorf("got %q, %q and %q", files["broken"], files["broken.error"], files["large.error"])
	}
}

// A CPU profile costs the replica a little, and a process has only one.
func TestADebugBundleIsMadeForOneCallerAtATime(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *Config) {
		c.Debug = func(ctx context.Context, _ time.Duration, file DebugFile) error {
			if err := file("first", func(io.Writer) error { return nil }); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	stream, err := r.admin.Debug(ctx, &dtaskv1.DebugRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	_, err = debugBundle(t.Context(), r, 0)
	wantError(t, err, codes.ResourceExhausted, dtaskv1.ErrorReason_ERROR_REASON_BUSY)
	leave()
	for _, profile := range []int64{-1, maxProfile.Milliseconds() + 1} {
		_, err = debugBundle(t.Context(), r, profile)
		wantError(t, err, codes.InvalidArgument, dtaskv1.ErrorReason_ERROR_REASON_INVALID)
	}
}
