package fsm

import "strings"

// queueNotification keeps the newest 10,000.
func (w *model) queueNotification(kind NotificationKind, job uint64, index uint32) {
	if len(w.notices) == 10_000 {
		w.notices = w.notices[1:]
		w.noticesLost++
	}
	w.notices = append(w.notices, Notification{Number: w.nextNotice, Kind: kind, Task: TaskRef{JobID(job), index}, QueuedMS: w.now})
	w.nextNotice++
	w.noticed++
}

func (w *model) notify(it DeadLetterNotification) string {
	j, t, r := w.task(it.Task)
	switch {
	case r != "":
		return r
	case it.Kind.String() != "dead letter (webhook)" && it.Kind.String() != "dead letter (command)":
		return "malformed"
	case t.state != "dead":
		return "wrong state"
	}
	w.queueNotification(it.Kind, j.id, it.Task.Index)
	return "accepted"
}

func (w *model) recordDelivered(it Delivery) string {
	for i, n := range w.notices {
		if n.Number == it.Number {
			w.notices = append(append([]Notification(nil), w.notices[:i]...), w.notices[i+1:]...)
			return "accepted"
		}
	}
	return "already ended"
}

// deadLetters counts dead tasks by type.
func (w *model) deadLetters() map[string]int {
	out := map[string]int{}
	for _, j := range w.jobs {
		for _, t := range j.tasks {
			if t.state != "dead" {
				continue
			}
			kind := j.policies[t.policy].GetType()
			switch {
			case kind != "":
			case strings.HasPrefix(t.submitted, "\x0a"):
				kind = "command"
			case strings.HasPrefix(t.submitted, "\x12"):
				kind = "run"
			}
			out[kind]++
		}
	}
	return out
}
