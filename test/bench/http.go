package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// body makes a request and returns the text of its answer.
func body(request *http.Request) (string, error) {
	request.Close = true
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking: %w", err)
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return "", fmt.Errorf("reading response: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("got status %s", answer.Status)
	}
	return string(text), nil
}
