// Package manifests tests the manifests in deploy/kubernetes and the compose file in
// deploy/docker. It builds each overlay, decodes every object strictly into the types of the
// Kubernetes API, checks its fields by the OpenAPI description of that API, loads the compose
// file as docker compose does, and checks what those formats don't: that selectors, ports,
// probes and volumes fit together, and that the flags are those of the programs. It has a
// module of its own, so that the libraries of Kubernetes are in no module graph of the
// product. It needs no cluster and no container engine.
package manifests
