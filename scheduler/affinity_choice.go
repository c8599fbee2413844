package scheduler

// ChooseKeyWorker returns the worker of a key of a namespace among those that are usable and
// could run the task if they were idle, or 0 without any. It is what Next takes for a class
// with this affinity, whatever the order of ids.
func ChooseKeyWorker(namespace, key string, ids []WorkerID) (chosen WorkerID) {
	hash, best := newAffinity(&Demand{Namespace: namespace, Affinity: key}).hash, uint64(0)
	for _, id := range ids {
		if x := score(hash, seedOf(id)); chosen == 0 || x > best {
			chosen, best = id, x
		}
	}
	return chosen
}
