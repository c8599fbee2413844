package mount

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/dtask/dtask/test/chaos/faultfs/disk"
)

// Serve mounts an empty disk at dir and executes the requests of in, one after
// another, until in ends; then it unmounts the disk. The first line of out reports
// whether it is mounted.
func Serve(dir string, in io.Reader, out io.Writer) error {
	m, err := New(dir)
	answers := json.NewEncoder(out)
	if err != nil {
		return errors.Join(err, answers.Encode(Answer{Error: err.Error()}))
	}
	if err := answers.Encode(Answer{}); err != nil {
		return errors.Join(err, m.Close())
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var q Request
		a := Answer{}
		err := json.Unmarshal(lines.Bytes(), &q)
		if err == nil {
			err = m.answer(&q, &a)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return errors.Join(err, m.Close())
		}
	}
	return errors.Join(lines.Err(), m.Close())
}

// answer executes a request.
func (m *Mount) answer(q *Request, a *Answer) error {
	var err error
	switch q.Do {
	case AddRule:
		a.Rule.ID = m.rules.add(q.Rule)
	case RemoveRule:
		m.rules.remove(q.Rule.ID)
	case FindRule:
		var ok bool
		if a.Rule, ok = m.rules.find(q.Rule.ID); !ok {
			err = fmt.Errorf("unknown rule %d", q.Rule.ID)
		}
	case SetFree:
		m.room.Store(min(m.disk.Used()+q.Number, size))
		m.hideRoom.Store(q.Hide)
	case PowerOff:
		m.PowerOff()
	case PowerOn:
		a.Loss, err = m.PowerOn(rand.New(rand.NewPCG(q.Seed, 1)))
	case Count:
		a.Counts, a.Number = m.rules.counts(), m.disk.Used()
	case Files:
		a.Names = m.disk.Files()
	case Export:
		err = m.disk.Export(q.Path)
	case Save:
		m.saved[q.Path] = m.disk.Save()
	case Load:
		err = m.load(q.Path)
	case Record:
		m.disk.Record(q.Number != 0)
	case MarkPoint:
		_, _ = m.disk.Apply(disk.Op{Kind: disk.Mark, Name: q.Path}) // it cannot fail
	case History:
		err = m.history(q.Path)
	case Flip, Tear:
		a.Number, err = m.damage(q)
	default:
		err = fmt.Errorf("unknown request %q", q.Do)
	}
	return err
}

func (m *Mount) load(name string) error {
	saved := m.saved[name]
	if saved == nil {
		return fmt.Errorf("unknown saved copy %q", name)
	}
	return m.change(func() error {
		m.disk.Load(saved)
		return nil
	})
}

func (m *Mount) history(to string) error {
	file, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("writing history: %w", err)
	}
	return errors.Join(disk.WriteOps(file, m.disk.History()), file.Close())
}

// damage changes a file without the knowledge of its users.
func (m *Mount) damage(q *Request) (at int64, err error) {
	id, err := m.disk.Find(q.Path)
	if err != nil {
		return 0, err
	}
	defer m.invalidate(q.Path)
	random := rand.New(rand.NewPCG(q.Seed, 2))
	if q.Do == Tear {
		return m.disk.TearLast(id, q.Number, random)
	}
	info, errno := m.disk.Stat(id)
	if errno != 0 || info.Size == 0 {
		return 0, fmt.Errorf("%s is empty or missing", q.Path)
	}
	bit := q.Number
	if bit < 0 {
		bit = random.Int64N(info.Size * 8)
	}
	return bit, m.disk.Flip(id, bit)
}
