package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dtask/dtask/coordinator/membership"
	"github.com/dtask/dtask/fsm"
)

func TestAnAlarmWarnsBeforeNobodyCanJoin(t *testing.T) {
	t.Parallel()
	machine := fsm.NewMachine()
	apply := func(ops ...fsm.Op) {
		fork, index := machine.Fork()
		b := fsm.NewEntryBuilder(fork, 1000, &fsm.Effects{})
		for _, op := range ops {
			if r := b.Do(op); r != fsm.Accepted {
				t.Fatalf("%T: %v", op, r)
			}
		}
		entry, _, _ := b.Finish()
		machine.Apply(index+1, fsm.Encode(nil, entry))
	}
	apply(&fsm.SetLevel{Level: fsm.MaxLevel})
	create := func(from, to int) {
		var ops []fsm.Op
		for n := from; n < to; n++ {
			hash := [32]byte{byte(n), byte(n >> 8), byte(n >> 16), 1}
			ops = append(ops, &fsm.CreateIdentity{
				Name: fmt.Sprint("i", n), Grant: fsm.Grant{Role: fsm.RoleMetrics}, Credential: fsm.Credential{Kind: fsm.TokenCredential, Hash: hash}, CreatedMS: 1000,
			})
		}
		apply(ops...)
	}
	var alarms membership.Alarms
	const warned = fsm.MaxIdentities / 10 * 9
	for n := 0; n < warned-1; n += 1000 {
		create(n, min(n+1000, warned-1))
	}
	if setIdentityAlarm(&alarms, machine); len(alarms.Of("n1")) > 0 {
		t.Errorf("got %v", alarms.Of("n1"))
	}
	create(warned-1, warned)
	setIdentityAlarm(&alarms, machine)
	list := alarms.Of("n1")
	if len(list) != 1 || list[0].GetKind() != membership.AlarmIdentities || !strings.Contains(list[0].GetMessage(), "the cluster has 90000 of at most 100000 identities") {
		t.Errorf("got %v", list)
	}
}
