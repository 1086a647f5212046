"""Timing collectives among the ranks of this machine: one process each, which ends with this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from engine.measure.samples import ExchangeSample
from engine.measure.timing import summary

__all__ = ["ExchangeError", "timed_exchanges"]

START: Final = 90.0
"""Seconds that starting the processes may take on a busy machine. Source: stated by us."""


class ExchangeError(Exception):
    """Failed benchmark of collectives; the message is one line with the reason."""


def timed_exchanges(
    sizes: Sequence[int], *, ranks: int, backend: str, seconds: float, threads: int
) -> tuple[ExchangeSample, ...]:
    """Times all-reduces and all-gathers of buffers of `sizes` [bytes] over `ranks` processes.

    Args:
        sizes: bytes of the full buffer; rounded to whole elements per rank.
        ranks: processes, one per accelerator.
        backend: "nccl" or "gloo".
        seconds: for everything but starting.
        threads: of each process.

    Raises:
        ExchangeError: a rank ended early, or they took far longer than `seconds`.
    """
    whole = 4 * ranks
    common = {
        "world": ranks,
        "backend": backend,
        "seconds": seconds,
        "threads": threads,
        "sizes": [max(size // whole, 1) * whole for size in sizes],
    }
    environment = dict(os.environ)
    if backend == "gloo" and Path("/sys/class/net/lo").exists():
        # Ranks of one machine meet over the loopback, independent of the machine's name.
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory(prefix="shardscape-measure-") as folder:
        started: list[subprocess.Popen[bytes]] = []
        try:
            for rank in range(ranks):
                argument = json.dumps({**common, "rank": rank, "file": str(Path(folder) / "meeting")})
                with open(Path(folder) / f"{rank}.out", "wb") as out, open(Path(folder) / f"{rank}.err", "wb") as err:
                    started.append(
                        subprocess.Popen(
                            # -P: the folder of the program is no place to import from.
                            [sys.executable, "-P", str(Path(__file__).with_name("ranks.py")), argument],
                            stdin=subprocess.PIPE,
                            stdout=out,
                            stderr=err,
                            env=environment,
                            start_new_session=True,
                        )
                    )
            _wait_for_ranks(started, time.monotonic() + START + 4.0 * seconds, Path(folder))
            answer = (Path(folder) / "0.out").read_text(encoding="utf-8")
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
    try:
        # Backends may print lines of their own.
        rows = json.loads(answer.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise ExchangeError("the ranks gave no timings") from None
    return tuple(
        ExchangeSample(kind=kind, ranks=ranks, size=size, time=summary(samples, batch))
        for kind, size, batch, samples in rows
    )


def _wait_for_ranks(started: Sequence[subprocess.Popen[bytes]], until: float, folder: Path) -> None:
    while any(process.poll() is None for process in started):
        failed = next((rank for rank, process in enumerate(started) if process.poll() not in (None, 0)), None)
        if failed is not None:
            raise ExchangeError(f"rank {failed} ended with: {_last_line(folder / f'{failed}.err')}")
        if time.monotonic() > until:
            raise ExchangeError("the ranks did not finish in time")
        time.sleep(0.05)
    failed = next((rank for rank, process in enumerate(started) if process.returncode != 0), None)
    if failed is not None:
        raise ExchangeError(f"rank {failed} ended with: {_last_line(folder / f'{failed}.err')}")


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no message"
