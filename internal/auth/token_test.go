package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestATokenIsReadBackFromItsText(t *testing.T) {
	t.Parallel()
	for range 1000 {
		made := NewToken()
		for _, text := range []string{made.Text().Reveal(), " " + made.Text().Reveal() + "\n"} {
			got, err := ParseToken(text)
			if err != nil || got != made || got.Hash() != made.Hash() {
				t.Fatalf("got %v, want %v: %v", got.ID(), made.ID(), err)
			}
		}
		if got, err := ParseHeader(made.Header()); err != nil || got != made {
			t.Fatalf("header: %v", err)
		}
	}
}

func TestTheTextOfATokenHasTheDocumentedForm(t *testing.T) {
	t.Parallel()
	text := NewToken().Text().Reveal()
	if len(text) != len("dtask_")+8+1+43+1+6 || !strings.HasPrefix(text, "dtask_") {
		t.Errorf("a token has %d characters", len(text))
	}
}

func TestAnyChangedCharacterOfATokenIsFound(t *testing.T) {
	t.Parallel()
	text := NewToken().Text().Reveal()
	for i := range text {
		for _, c := range []byte("Aa0_-!") {
			if text[i] == c {
				continue
			}
			changed := text[:i] + string(c) + text[i+1:]
			if _, err := ParseToken(changed); err == nil {
				t.Errorf("character %d changed to %c: accepted", i, c)
			} else if strings.Contains(err.Error(), text[16:30]) {
				t.Errorf("the error contains the secret: %v", err)
			}
		}
		if _, err := ParseToken(text[:i]); err == nil {
			t.Errorf("cut to %d characters: accepted", i)
		}
	}
}

func TestASecretIsNeverPrinted(t *testing.T) {
	t.Parallel()
	s := NewToken().Text()
	var out bytes.Buffer
	slog.New(slog.NewTextHandler(&out, nil)).Info("made", "token", s)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("made", "token", s)
	_, _ = fmt.Fprintf(&out, "%v %s %q %+v %#v", s, s, s, struct{ T Secret }{s}, struct{ T Secret }{s})
	if err := json.NewEncoder(&out).Encode(map[string]any{"token": s}); err != nil {
		t.Error(err)
	}
	if strings.Contains(out.String(), s.Reveal()[15:]) || !strings.Contains(out.String(), "***") {
		t.Errorf("printed: %s", out.String())
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(NewToken().Text().Reveal())
	f.Add("dtask_0123abcd_")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := ParseToken(text); err == nil && got.Text().Reveal() != strings.TrimSpace(text) {
			t.Errorf("%q is read as another token", text)
		}
	})
}
