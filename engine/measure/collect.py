"""The whole run: every benchmark in turn, with progress and a bound on time; what fails is skipped with its reason."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from engine.measure.benchmarks import Benchmarks
from engine.measure.devices import described, pytorch
from engine.measure.exchanges import ExchangeError, timed_exchanges
from engine.measure.samples import Attention, Device, LaunchSample, MeasureError, Product, Samples, Skipped, Transfer
from engine.measure.sizes import MeasurementPlan, plan

__all__ = ["MOST_RANKS", "MOST_SECONDS", "MeasurementProgress", "measure"]

MOST_RANKS: Final = 64
"""Most ranks and threads of a measurement. Source: stated by us."""
LEAST_SECONDS: Final = 1.0
"""Shortest measurement [s]. Source: stated by us."""
MOST_SECONDS: Final = 3_600.0
"""Longest measurement [s]. Source: stated by us."""
CALLS: Final = 5.0
"""Calls that timing one operation takes at least. Source: stated by us."""
BUSY: Final = 0.3
"""Load per core from which other work disturbs the timings. Source: stated by us."""
PATIENCE: Final = 3.0
"""Largest multiple of its share of the time that an operation may take; a larger one is left out. Source: stated by
us."""


@dataclass(frozen=True, slots=True)
class MeasurementProgress:
    """Progress of the run: benchmarks done of all, the next one, and an upper bound of the seconds left."""

    done: int
    total: int
    what: str
    seconds_left: float


Listener = Callable[[MeasurementProgress], None]


def measure(
    *,
    device: str = "auto",
    quick: bool = False,
    seconds: float | None = None,
    ranks: int | None = None,
    threads: int | None = None,
    progress: Listener | None = None,
) -> Samples:
    """Runs all benchmarks on this machine.

    Args:
        device: "auto" (an accelerator if present), "cuda" (also ROCm's) or "cpu".
        quick: fewer and smaller operations, for about ten seconds.
        seconds: for the benchmarks themselves [s], plus the warm-up of accelerators; chosen by `quick` if None.
        ranks: processes for the collectives; all accelerators, or 2 on a CPU, if not given. 1 skips collectives.
        threads: threads of a CPU; PyTorch's own number if not given.
        progress: called before every benchmark.

    Raises:
        MeasureError: no PyTorch, no such device, a number out of range, or nothing could be timed.
    """
    if seconds is not None and not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise MeasureError(f"--seconds is {seconds:g}; it must be from {LEAST_SECONDS:g} to {MOST_SECONDS:g}.")
    torch = pytorch()
    if threads is not None:
        if not 1 <= threads <= MOST_RANKS:
            raise MeasureError(f"--threads is {threads}; it must be from 1 to {MOST_RANKS}.")
        torch.set_num_threads(threads)
    found = described(torch, device)
    number = _choose_ranks(found, ranks)
    sizes = plan(found.kind, quick=quick, seconds=seconds)
    remarks = _list_remarks()
    run = _BenchmarkRun(Benchmarks(torch, found), found, sizes, number, progress)
    run.everything(torch.get_num_threads())
    if not run.products or not run.transfers:
        reason = run.skipped[0].reason if run.skipped else "nothing ran"
        raise MeasureError(f"Nothing could be measured on {found.name}: {reason}.")
    return Samples(
        device=found,
        quick=quick,
        products=tuple(run.products),
        attentions=tuple(run.attentions),
        transfers=tuple(run.transfers),
        exchanges=tuple(run.exchanges),
        launches=tuple(run.launches),
        skipped=tuple(run.skipped),
        remarks=remarks,
    )


def _list_remarks() -> tuple[str, ...]:
    """Return remarks on the machine that make the timings doubtful from the start."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= BUSY * cores:
        return ()
    return (
        f"The machine was busy when measuring began (load {load:.1f} on {cores} cores): timings are too long, on a CPU "
        "least so with --threads 1.",
    )


def _choose_ranks(device: Device, wanted: int | None) -> int:
    if wanted is None:
        return min(2, os.cpu_count() or 1) if device.kind == "cpu" else device.count
    most = MOST_RANKS if device.kind == "cpu" else device.count
    if not 1 <= wanted <= most:
        raise MeasureError(f"--ranks is {wanted}; it must be from 1 to {most} on this machine.")
    return wanted


@dataclass
class _BenchmarkRun:
    bench: Benchmarks
    device: Device
    sizes: MeasurementPlan
    ranks: int
    listener: Listener | None
    products: list[Product] = field(default_factory=list)
    attentions: list[Attention] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    exchanges: list[Any] = field(default_factory=list)
    launches: list[LaunchSample] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    steps: list[tuple[str, float, float, Callable[[float], None]]] = field(default_factory=list)

    def everything(self, threads: int) -> None:
        """List all benchmarks, then run them."""
        self._list(threads)
        for done, (what, share, _, action) in enumerate(self.steps):
            if self.listener is not None:
                left = sum(longest for _, _, longest, _ in self.steps[done:])
                self.listener(MeasurementProgress(done, len(self.steps), what, left))
            try:
                with warnings.catch_warnings():
                    # PyTorch warns of every kernel that it does not take, before it raises where none is left.
                    warnings.simplefilter("ignore")
                    action(share)
            except (RuntimeError, NotImplementedError, ExchangeError) as problem:
                # Out of memory, a kernel that this device does not have: the others may still run.
                self._skip(what, str(problem))

    def _skip(self, what: str, reason: str) -> None:
        line = next((line.strip() for line in reason.splitlines() if line.strip()), "failed without a message")
        self.skipped.append(Skipped(what=what, reason=line.rstrip(".")[:300]))

    def _list(self, threads: int) -> None:
        sizes = self.sizes
        shares = {kind: share * sizes.seconds for kind, share in sizes.shares.items()}
        transfers = [(kind, moved) for moved in sizes.transfers for kind in ("copy", "triad")]
        for kind, moved in transfers:
            share = shares["transfers"] / len(transfers)
            self._add(f"{kind} of {moved / 1e6:g} MB", share, self._transfer(kind, moved))
        kinds = ["kernel", "block_forward", "block"] + ["graph"] * (self.device.kind != "cpu")
        for kind in kinds:
            self._add(f"launches: {kind.replace('_', ' ')}", shares["launches"] / len(kinds), self._launch(kind))
        types = [self.device.datatype] + ["float8"] * self.bench.eight_bit
        for datatype in types:
            for size in sizes.products:
                share = shares["products"] / (len(types) * len(sizes.products))
                what = f"product in {datatype}, {size[0]} x {size[1]} x {size[2]}"
                self._add(what, share, self._product(what, datatype, size))
        for kernel in self.bench.kernels:
            for batch, sequence in sizes.attentions:
                share = shares["attentions"] / (len(self.bench.kernels) * len(sizes.attentions))
                what = f"{kernel} attention, {batch} x {sequence} tokens"
                self._add(what, share, self._attention(what, kernel, (batch, sequence)), timings=2)
        if self.ranks > 1:
            what = f"collectives over {self.ranks} processes"
            self._add(what, shares["exchanges"], self._exchange(threads), timings=0)
        elif self.device.kind == "cpu":
            self._skip("collectives", "a single process has nobody to exchange with")
        else:
            self._skip("collectives", "there is one accelerator")

    def _add(self, what: str, share: float, action: Callable[[float], None], timings: int = 1) -> None:
        """Lists a step, with its share of the time and how long it takes at most, as each timing warms up first [s]."""
        self.steps.append((what, share, share + timings * self.bench.warm_seconds, action))

    def _transfer(self, kind: Any, moved: int) -> Callable[[float], None]:
        return lambda share: self.transfers.append(self.bench.transfer(kind, moved, share))

    def _launch(self, kind: Any) -> Callable[[float], None]:
        def run(share: float) -> None:
            self.bench.release()
            timed = {"kernel": self.bench.kernel, "graph": self.bench.graph}.get(kind)
            self.launches.append(timed(share) if timed else self.bench.block(kind, share))

        return run

    def _product(self, what: str, datatype: str, size: tuple[int, int, int]) -> Callable[[float], None]:
        def run(share: float) -> None:
            rates = [each.rate for each in self.products if each.datatype == datatype]
            if not self._too_long(what, 2.0 * size[0] * size[1] * size[2], max(rates, default=0.0), share):
                self.products.append(self.bench.product(datatype, size, share))

        return run

    def _attention(self, what: str, kernel: Any, size: tuple[int, int]) -> Callable[[float], None]:
        heads, head = self.sizes.heads, self.sizes.head_size

        def operations(batch: int, sequence: int) -> float:
            return 7.0 * batch * heads * head * sequence**2

        def run(share: float) -> None:
            before = [each for each in self.attentions if each.kernel == kernel]
            rate = max((operations(each.batch, each.sequence) / each.both.seconds for each in before), default=0.0)
            if not self._too_long(what, operations(*size), rate, share):
                self.attentions.append(self.bench.attention(kernel, heads, head, size, share))

        return run

    def _too_long(self, what: str, operations: float, rate: float, share: float) -> bool:
        """Return True if an operation would take far more than its share of the time, judged by smaller ones."""
        took = operations / rate * CALLS if rate > 0 else 0.0
        if took <= max(PATIENCE * share, 0.5):
            return False
        self._skip(what, f"{CALLS:g} of them would take {took:.3g} s here; give more with --seconds")
        return True

    def _exchange(self, threads: int) -> Callable[[float], None]:
        backend = "gloo" if self.device.kind == "cpu" else "nccl"
        each = max(threads // self.ranks, 1)

        def run(share: float) -> None:
            found = timed_exchanges(
                self.sizes.exchanges, ranks=self.ranks, backend=backend, seconds=share, threads=each
            )
            self.exchanges.extend(found)

        return run
