package api

import (
	"context"
	"strconv"
	"strings"
)

const (
	// maxPageBytes bounds the jobs, tasks or workers of one message.
	maxPageBytes = 1 << 20
	// walkStride is how many tasks a walk visits between two checks of its context.
	walkStride = 4096
)

// ended reports why a walk must stop at its i-th step: its context is done.
func ended(ctx context.Context, i uint32) error {
	if i%walkStride == 0 && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// pageLimit is the number of elements that a request asks for; admit has checked it.
func pageLimit(limit uint32) int {
	if limit == 0 {
		return defaultLimit
	}
	return int(limit)
}

// A pageToken is where the next page starts: a job or a worker and, in a listing of
// tasks, an index. The zero token is the first page.
type pageToken struct {
	id    uint64
	index uint32
}

// String returns the text form: the id, and the index if it is not 0.
func (t pageToken) String() string {
	text := strconv.FormatUint(t.id, 10)
	if t.index > 0 {
		text += "/" + strconv.FormatUint(uint64(t.index), 10)
	}
	return text
}

// parsePageToken parses the token of a request.
func parsePageToken(text string) (pageToken, error) {
	if text == "" {
		return pageToken{}, nil
	}
	id, index, _ := strings.Cut(text, "/")
	n, _ := strconv.ParseUint(id, 10, 64)
	i, _ := strconv.ParseUint(index, 10, 32)
	t := pageToken{n, uint32(i)}
	if n == 0 || t.String() != text {
		return pageToken{}, invalid("invalid page_token %s: use the one of the response before", quote(text))
	}
	return t, nil
}
