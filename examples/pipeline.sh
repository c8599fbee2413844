#!/bin/sh
# A pipeline without a job file: a build, its tests on many workers, and then a release
# or an alert. Each job needs the one before it. The cluster stores these needs, so that the
# pipeline continues even if this script is killed, or this machine is shut down.
#
#   PATH=$PWD/bin:$PATH sh examples/pipeline.sh
set -eu

build=$(dtaskctl run -q --name build -- sh -c 'echo "built revision 17"')
tests=$(dtaskctl run -q --name tests --needs "$build" --array 0-7 --retries 1 -- \
	sh -c 'echo "part $1 passed"' sh '${{ index }}')
release=$(dtaskctl run -q --name release --needs "$tests" -- echo "released revision 17")
alert=$(dtaskctl run -q --name alert --needs "$tests=failed" -- echo "the tests have failed")

dtaskctl wait "$release" "$alert"
dtaskctl logs "$tests"
dtaskctl logs "$release"
