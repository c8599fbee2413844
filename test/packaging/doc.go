// Package packaging tests what users install: the systemd units, the compose file and the
// archives of a release. It needs no network and no root. A test whose tool is missing on
// this machine is skipped. The manifests have tests in a module of their own,
// test/manifests.
package packaging
