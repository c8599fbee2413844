// Package workflows makes job graphs in the shapes of published scientific workflows.
//
// What it is for: suites of whole processes run graphs as users of workflow systems have
// them, with fans of a thousand tasks, chains, levels that all depend on one task, and IDs
// of up to 124 characters. [Collection] makes 167 graphs with 64,321 tasks, as many as the
// WfCommons collection of instances (https://wfcommons.org/instances) has. The families,
// their levels and the form of their IDs are those of that collection; each graph is made
// here. Two families, CyberShake and Rosetta, are published elsewhere.
//
// What it does not do: it starts nothing and knows no job files. It has no clock and no
// goroutines, and the same seed makes the same graphs.
package workflows
