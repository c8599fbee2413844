"""Executes a command many times with a HyperQueue server and one worker.

Arguments: cores of the worker, number of tasks, command... Prints the seconds from the
submission of all tasks, as one job, until the last one has ended, as JSON.
"""

import json
import os
import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

cores, count, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
with LocalCluster(worker_config=WorkerConfig(cores=cores)) as cluster:
    client = cluster.client()
    job = Job(default_workdir=os.getcwd())
    for _ in range(count):
        job.program(command)
    began = time.monotonic()
    client.wait_for_jobs([client.submit(job)])
    print(json.dumps({"seconds": time.monotonic() - began}))
