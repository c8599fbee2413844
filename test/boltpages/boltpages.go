// Package boltpages finds pages of bbolt stores that tests damage.
package boltpages

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// Size is the size of a page in bytes.
const Size = 4096

// Used returns the numbers of the pages of a store that are in use: most are free, and their
// content does not matter. No process may have the store open for writing.
func Used(tb testing.TB, path string) (used []int64) {
	tb.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, PageSize: Size, PreLoadFreelist: true, Timeout: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		for id := 0; ; {
			page, err := tx.Page(id)
			if err != nil || page == nil {
				return err
			}
			for range 1 + page.OverflowCount {
				if page.Type != "free" {
					used = append(used, int64(id))
				}
				id++
			}
		}
	})
	if err := errors.Join(err, db.Close()); err != nil {
		tb.Fatal(err)
	}
	return used
}
