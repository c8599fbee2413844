// Package gpu finds the GPUs of a worker's machine and shares them among its attempts.
//
// The coordinators count GPUs like any other resource, in thousandths, and don't know which
// one an attempt uses. This package decides that: [Find] names the GPUs that the worker
// offers, and a [Pool] gives each attempt its own.
package gpu
