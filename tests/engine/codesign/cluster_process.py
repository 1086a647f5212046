"""A Dask cluster of separate processes, for tests that end parts of it: prints its address, then waits to be killed."""

from __future__ import annotations

import sys
import time

if __name__ == "__main__":
    from distributed import LocalCluster

    count = int(sys.argv[1])
    with LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(600)
