package membership

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAnAlarmKeepsItsTimeUntilItIsCleared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a Alarms
		a.Clear(AlarmClockSkew)
		began := time.Now()
		a.Raise(AlarmDivergence, "first")
		time.Sleep(time.Minute)
		a.Set(AlarmDivergence, true, "second")
		a.RaiseSince(AlarmClockSkew, "skew", began.Add(-time.Hour))
		got := a.Of("n1")
		if len(got) != 2 || got[0].GetKind() != AlarmClockSkew || !got[0].GetSince().AsTime().Equal(began.Add(-time.Hour)) ||
			got[1].GetMessage() != "second" || !got[1].GetSince().AsTime().Equal(began) || got[1].GetMember() != "n1" {
			t.Errorf("got %v", got)
		}
		a.Set(AlarmDivergence, false, "")
		a.Clear(AlarmClockSkew)
		if got := a.Of("n1"); len(got) != 0 {
			t.Errorf("got %v after all were cleared", got)
		}
		a.Raise(AlarmDivergence, "third")
		if got := a.Of("n1"); !got[0].GetSince().AsTime().Equal(time.Now()) {
			t.Errorf("the alarm began at %v", got[0].GetSince().AsTime())
		}
	})
}
