#!/bin/sh
# A pipeline without a job file: a build, its tests on many workers, and then a release
# or an alert. Each job needs the one before it. The cluster remembers that: the pipeline
# ends as it should even if this script, or this machine, does not.
#
#   DTASK_ADDR=127.0.0.1:7460 sh examples/pipeline.sh
set -eu

build=$(dtaskctl run -q --name build -- sh -c 'echo "built revision 17"')
tests=$(dtaskctl run -q --name tests --needs "$build" --array 0-7 --retries 1 -- \
	sh -c 'echo "part $1 passed"' sh '${{ index }}')
release=$(dtaskctl run -q --name release --needs "$tests" -- echo "released revision 17")
alert=$(dtaskctl run -q --name alert --needs "$tests=failed" -- echo "the tests have failed")

dtaskctl wait "$release" "$alert"
dtaskctl logs "$tests"
dtaskctl logs "$release"
