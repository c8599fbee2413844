// Package faults has the fault switches of the suites of whole processes. A
// coordinator that is built with -tags faults calls Install, and then serves
// requests under /test/ that damage it on purpose, so that a test can see
// whether the cluster notices.
//
//	POST /test/flip?job=…&task=…          changes a field of the replicated state
//	POST /test/clock {"offset_ms": …}     sets the wall clock, see clockSetting
//	POST /test/fail?step=…&how=…&times=…  makes a step of a term fail, see stepFaults
//	GET  /test/fail                       counts the failures of each step
//	POST /test/snapshot                   takes a snapshot if there are new entries
//
// Released programs don't link this package: internal/archtest holds that
// (ADR 0029).
package faults
