"""How fast studies run: points a second here, in two processes and on Dask, with and without skipping, and what a
scheduler and a folder carry. `python -m tests.benchmarks codesign`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from engine import codesign
from engine.cli.output import text_table

__all__ = ["run"]

DOCUMENT: Final[dict[str, Any]] = {
    "format": codesign.FORMAT,
    "models": ["gpt3-13B"],
    "systems": ["h100_80g_nvl8"],
    "edits": [
        {"parameter": "hbm_capacity", "from": 20, "to": 160, "count": 8},
        {"parameter": "hbm_bandwidth", "from": 1500, "to": 6000, "count": 8, "scale": "log"},
        {"parameter": "net0_bandwidth", "from": 150, "to": 900, "count": 8, "scale": "log"},
        {"parameter": "host_capacity", "values": [0, 64, 128, 256, 512]},
        {"parameter": "net1_bandwidth", "from": 12.5, "to": 100, "count": 4, "scale": "log"},
    ],
    "sizes": [32],
    "datatypes": ["float8"],
    "batches": [32],
    "cost_model": "calculon",
    "costs": {
        "usd": {
            "processor": 20_000,
            "mem1_gib": [17, 82],
            "mem1_gb_per_s": [1, 2],
            "mem2_gib": [3.84, 6],
            "network_gb_per_s": [[2, 4], [26, 40]],
            "host": [32_000, 75_000],
        },
    },
    "objectives": ["tokens_per_s", "usd"],
}
"""10,240 designs, each with a space of 0.7 million executions."""

FEW: Final = {"edits": [{**edit, **({"count": 3} if "count" in edit else {})} for edit in DOCUMENT["edits"]]}
"""405 of them, spread alike."""

TASKS: Final = 4_000
"""Tasks of nothing that a scheduler is given, to see how many a second it takes."""


def run(file: Path | None, *, whole: bool) -> None:
    """Measures and prints.

    Args:
        file: where everything measured is written too, as JSON.
        whole: whether all 10,240 points are searched one by one as well, here and by a worker, some minutes.
    """
    found: dict[str, Any] = {}
    few = codesign.Study.from_document({**DOCUMENT, **FEW})
    rows = []
    for label, how in (("one process", {"workers": 1}), ("two processes", {"workers": 2})):
        rows.append(_measured(found, label, few, how))
    from distributed import Client, LocalCluster

    for workers in (1, 2, 4):
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            rows.append(_measured(found, f"Dask, {workers} workers", few, {"client": client}))
            memory = client.run(_peak)
            found[f"Dask, {workers} workers"]["worker_bytes"] = max(memory.values())
            if workers == 2:
                found["scheduler tasks per second"] = _scheduler_rate(client)
    one = found["one process"]["seconds"]
    print(f"{os.cpu_count()} cores; {few.points:,} points of the space of 710,752 executions")
    print(
        text_table(
            ("where", "s", "points/s", "against one process"),
            [[*row, f"{one / found[row[0]]['seconds']:.2f}"] for row in rows],
        )
    )
    print(f"\nA scheduler on one of these cores takes {found['scheduler tasks per second']:,.0f} tasks a second.")
    print(f"Bytes per point, one process: {found['one process']['bytes per point']:.0f}")
    found["skipping"] = _skipping(whole)
    found["client memory"] = {str(count): _client_memory(count) for count in (1_280, 1_000_000)}
    found["worker memory"] = _worker_memory((1_280, 7_680)) if whole else _worker_memory((128, 405))
    print(json.dumps({name: found[name] for name in ("skipping", "client memory", "worker memory")}, indent=1))
    if file:
        file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def _measured(found: dict[str, Any], label: str, study: codesign.Study, how: dict[str, Any]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        done = codesign.run(study, folder, **how)
        seconds = time.perf_counter() - start
    found[label] = {"seconds": seconds, "tasks": done.tasks, "bytes per point": done.bytes / done.total}
    return [label, f"{seconds:.1f}", f"{done.total / seconds:.1f}"]


def _skipping(whole: bool) -> dict[str, Any]:
    """All 10,240 points in one process with skipping, in seconds of its processor, and without."""
    figures: dict[str, Any] = {}
    answers = []
    for prune in (True, False) if whole else (True,):
        study = codesign.Study.from_document({**DOCUMENT, "prune": prune})
        with tempfile.TemporaryDirectory() as folder:
            start, processor = time.perf_counter(), time.process_time()
            done = codesign.run(study, folder, workers=1)
            figures["with" if prune else "without"] = {
                "seconds": time.perf_counter() - start,
                "processor seconds": time.process_time() - processor,
                "searched": done.total - done.skipped,
            }
            answers.append(codesign.front(folder))
    assert all(answer.equals(answers[0]) for answer in answers)
    return figures


def _scheduler_rate(client: Any) -> float:
    start = time.perf_counter()
    client.gather(client.map(_nothing, range(TASKS), pure=False))
    return TASKS / (time.perf_counter() - start)


def _nothing(number: int) -> int:
    return number


def _peak(what: str = "VmHWM") -> int:
    # Not of getrusage: a process that is started counts what its parent took.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{what}:")[1].split()[0]) * 1024


def _worker_memory(counts: Sequence[int]) -> dict[str, int]:
    """Bytes that the one process of a Dask worker holds after so many points that it searched, and when the parts of
    all of them are merged; without Dask's profiler, which keeps a sample of every 10 ms for an hour."""
    import dask
    from distributed import Client, LocalCluster

    study = codesign.Study.from_document(DOCUMENT if counts[-1] > 405 else {**DOCUMENT, **FEW})
    left, held = list(counts), {}
    with (
        dask.config.set({"distributed.worker.profile.enabled": False}),
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        tempfile.TemporaryDirectory() as folder,
    ):

        def told(progress: codesign.Progress) -> None:
            while left and progress.done >= left[0]:
                (held[str(left.pop(0))],) = client.run(_peak, "VmRSS").values()

        codesign.run(study, folder, client=client, progress=told)
        (held["merged"],) = client.run(_peak, "VmRSS").values()
    return held


def _client_memory(count: int) -> int:
    """Bytes that a client takes at most that hands out all tasks of so many points, which return at once."""
    code = f"from tests.benchmarks.codesign import hand_out; hand_out({count})"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    return int(done.stdout)


def hand_out(count: int) -> None:
    """Hands out the tasks of a study of about so many points to workers that do nothing, and prints the memory used.

    Args:
        count: of points.
    """
    from engine.codesign import running, tasks

    def nothing(task: tasks.StudyTask) -> tasks.Done:
        return tasks.Done(task.first, task.count, task.count, task.count, 0, 0, 0.02 * task.count, 0)

    running.compute_task = nothing
    side = max(2, round((count / 5) ** (1 / 4)))
    edits = [{**edit, **({"count": side} if "count" in edit else {})} for edit in DOCUMENT["edits"]]
    with tempfile.TemporaryDirectory() as folder:
        codesign.run(codesign.Study.from_document({**DOCUMENT, "edits": edits}), folder, workers=1)
    print(_peak())
