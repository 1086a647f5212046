"""Data parallelism on all devices, the baseline of a pipeline: without overlap, with overlap, with P3, and with
accumulation if memory does not hold a device's share of the batch."""

from __future__ import annotations

from dataclasses import dataclass

from engine.executions.arrays import Floats
from engine.planners.layerwise.cluster import MachineCluster
from engine.planners.layerwise.profiles.states import States

__all__ = ["DataParallel", "accumulation_size", "data_parallel", "largest_batch"]


@dataclass(frozen=True, slots=True)
class DataParallel:
    """Speedups over one device [dimensionless], None where memory holds not even one sample.

    `accumulated` is the number of samples that a device computes at once, `largest` what memory would hold of them.
    """

    plain: float
    overlapped: float | None
    prioritised: float | None
    accumulated: int
    largest: int

    @property
    def best(self) -> float:
        """Returns the best speedup that memory allows."""
        return max(self.plain if self.accumulated else 0.0, self.overlapped or 0.0, self.prioritised or 0.0)


def largest_batch(states: States, memory: float, optimizer: float, per_sample: float) -> int:
    """Returns samples that a device with all layers holds at once: floor((memory - optimizer parameters) / peak per
    sample).

    Args:
        states: of the profile, of which the parameters count [bytes].
        memory: of a device [bytes].
        optimizer: parameters, gradients and optimizer states in multiples of the parameters.
        per_sample: peak activations of one sample [bytes].
    """
    left = memory - optimizer * float(states.parameters[-1])
    return 2**31 if per_sample <= 0 else max(0, int(left // per_sample))


def accumulation_size(share: int, largest: int) -> int:
    """Returns samples that a device computes at once of its `share` of the batch, where memory holds `largest`.

    Args:
        share: samples of a step on one device.
        largest: samples that a device's memory holds at once.
    """
    if largest >= share:
        return share
    if not largest:
        return 0
    # HPGO takes the fewest equal parts, up to half of the share.
    parts = -(-share // largest)
    while share % parts and parts < share // 2 + 1:
        parts += 1
    return share // parts


def data_parallel(states: States, cluster: MachineCluster, batch: int, largest: int) -> DataParallel:
    """Returns the speedups of data parallelism for a batch.

    Args:
        states: at that batch.
        cluster: all of whose devices take part.
        batch: samples of a step on all devices.
        largest: samples that a device's memory holds at once.
    """
    everyone, count = range(cluster.size), cluster.size
    total, alone = states.total, states.total / count
    compute, held = states.by_layer()
    reduce = cluster.reduce_time(everyone, 1.0) * held

    def speedup(exposed: float) -> float:
        return total / (alone + exposed)

    size = accumulation_size(batch // count, largest)
    share = size / batch
    return DataParallel(
        plain=speedup(cluster.reduce_time(everyone, float(states.parameters[-1]))),
        overlapped=speedup(_exposed_all_reduce(compute * share, reduce, prioritised=False)) if size else None,
        prioritised=speedup(_exposed_all_reduce(compute * share, reduce, prioritised=True)) if size else None,
        accumulated=size,
        largest=largest,
    )


def _exposed_all_reduce(compute: Floats, reduce: Floats, *, prioritised: bool) -> float:
    """Returns the seconds of all-reduce that nothing hides [s]: each has until the next gradient is ready, half of a
    layer's time.

    With P3 (Jayarajan et al., "Priority-based Parameter Propagation", MLSys 2019) the forward pass of the next step
    hides more; as in HPGO, of the mirrored layer.
    """
    # A gradient has until the next layer's is ready: half of that layer's time is backward.
    slots = compute[:-1] / 2
    if prioritised:
        slots = slots + compute[:0:-1] / 2
    # What an all-reduce leaves of its slot is slack for later ones; what is over is exposed.
    exposed, slack = float(reduce[0]), 0.0
    for over in (reduce[1:] - slots).tolist():
        if over < slack:
            slack -= over
        else:
            exposed += over - slack
            slack = 0.0
    return exposed
