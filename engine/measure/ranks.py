"""Program of one rank of the collective benchmarks.

Imports nothing of this package, so that it starts as fast as PyTorch does. Its only argument is a JSON object: rank,
world, backend, file (where the ranks meet), sizes [bytes], seconds (for everything) and threads. The first rank prints
a JSON list of [kind, size, batch, seconds per call of every sample].
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

KINDS = ("all_reduce", "all_gather")
ELEMENT_BYTES = 4
"""Bytes of an element of the buffers [bytes]: 32-bit floats."""
SAMPLE_SECONDS = 2e-3
"""Shortest batch of calls that is timed [s], far above the resolution of the clock. Source: stated by us."""
FEWEST, MOST = 3, 60
"""Fewest and most samples of a collective and size. Source: stated by us."""
PATIENCE = timedelta(seconds=60)
"""Time that a rank waits for the others. Source: stated by us."""


def main() -> None:
    """Runs the rank that the argument describes."""
    given = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(given["threads"])
    accelerated = given["backend"] == "nccl"
    device = torch.device("cuda", given["rank"]) if accelerated else torch.device("cpu")
    if accelerated:
        torch.cuda.set_device(device)
    wait: Callable[[], object] = torch.cuda.synchronize if accelerated else (lambda: None)
    dist.init_process_group(
        given["backend"],
        init_method=f"file://{given['file']}",
        rank=given["rank"],
        world_size=given["world"],
        timeout=PATIENCE,
        device_id=device if accelerated else None,
    )
    share = given["seconds"] / (len(KINDS) * len(given["sizes"]))
    found = [
        [
            kind,
            size,
            *_time_calls(
                _build_collective(torch, dist, kind, size, given["world"], device), share, wait, torch, device
            ),
        ]
        for size in given["sizes"]
        for kind in KINDS
    ]
    dist.destroy_process_group()
    if given["rank"] == 0:
        print(json.dumps(found))


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone: its end of the pipe closes."""
    # Not sys.stdin, whose lock would be held when this process ends by itself.
    os.read(0, 1)
    os._exit(1)


def _build_collective(torch: Any, dist: Any, kind: str, size: int, world: int, device: Any) -> Callable[[], object]:
    whole = torch.ones(size // ELEMENT_BYTES, device=device)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(whole)
    part = torch.ones(size // ELEMENT_BYTES // world, device=device)
    return lambda: dist.all_gather_into_tensor(whole, part)


def _time_calls(
    call: Callable[[], object], seconds: float, wait: Callable[[], object], torch: Any, device: Any
) -> tuple[int, list[float]]:
    """Calls per sample, and the seconds of one call in every sample: as many samples as `seconds` hold."""
    dist = torch.distributed

    def once(batch: int) -> float:
        dist.barrier()
        wait()
        start = time.perf_counter()
        for _ in range(batch):
            call()
        wait()
        return (time.perf_counter() - start) / batch

    once(1)
    # All ranks have to call equally often, so they agree on the slowest one's time.
    slowest = torch.tensor([once(3)], device=device, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    one = max(float(slowest), 1e-7)
    batch = min(max(math.ceil(SAMPLE_SECONDS / one), 1), 1_000)
    number = min(max(int(seconds / (one * batch)), FEWEST), MOST)
    return batch, [once(batch) for _ in range(number)]


if __name__ == "__main__":
    main()
