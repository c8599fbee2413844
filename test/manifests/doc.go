// Package kubernetes tests the manifests in deploy/kubernetes: it builds each overlay,
// decodes every object strictly into the types of the Kubernetes API, and checks what those
// types don't: that selectors, ports, probes and volumes fit together, and that the flags
// are those of the programs. It has a module of its own, so that the libraries of Kubernetes
// are in no module graph of the product. It needs no cluster.
package kubernetes
