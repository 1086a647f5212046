"""A Dask cluster of separate processes, for tests that end parts of it: prints its address, then waits to be killed."""

from __future__ import annotations

import sys
import time

if __name__ == "__main__":
    import dask
    from distributed import LocalCluster
    from distributed.utils import get_mp_context

    count = int(sys.argv[1])
    # Workers are forked from a server that has imported what they run, once for all that are started and replaced.
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
    get_mp_context().set_forkserver_preload(["distributed", "engine.codesign"])
    with LocalCluster(n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(600)
