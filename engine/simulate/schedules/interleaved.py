"""Schedules of several chunks per rank that pass the model in a loop.

Sources: Narayanan et al. 2021 (arXiv:2104.04473), section 2.2, and NVIDIA/Megatron-LM's `schedules.py` for the group
size and for forwards and backwards run as pairs to hide expert exchange; torch.distributed.pipelining for the split
backward; Lamy-Poirier 2022 (arXiv:2211.05953) for breadth first; Calculon 0.1.0 for its own rule of a last group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.simulate.schedules.contract import (
    Entry,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
    backward,
    forward,
    input_gradient,
    pair,
    weight_gradient,
)

__all__ = ["RULES", "group_size", "padded_microbatches"]

Turn = tuple[int, int]
"""Chunk and microbatch."""


def group_size(shape: ScheduleShape) -> int:
    """Returns how many microbatches pass a chunk before the next one's turn: P, or all where there are fewer.

    A group that Megatron refuses though M is a multiple of P is torch's case, which has no group size and takes P.

    Args:
        shape: ranks, microbatches, chunks and group of a step.
    """
    if shape.group is None or _refused_rest(shape):
        return min(shape.ranks, shape.microbatches)
    return shape.group


def _refused_rest(shape: ScheduleShape) -> int:
    """Returns the rest of the microbatches in groups for which Megatron refuses them, or 0."""
    rest = shape.microbatches % (shape.group or min(shape.ranks, shape.microbatches))
    return rest if rest < shape.ranks else 0


def padded_microbatches(shape: ScheduleShape) -> int:
    """Returns the microbatches of full groups of P, of which Calculon's rule leaves the last ones empty.

    Args:
        shape: ranks, microbatches, chunks and group of a step.
    """
    return -(-shape.microbatches // shape.ranks) * shape.ranks if shape.chunks > 1 else shape.microbatches


def _list_turns(shape: ScheduleShape, group: int, microbatches: int) -> list[Turn]:
    """Lists chunk and microbatch in the order of forwards: a group through chunk 0, through chunk 1, and so on."""
    return [
        (chunk, m)
        for first in range(0, microbatches, group)
        for chunk in range(shape.chunks)
        for m in range(first, min(first + group, microbatches))
    ]


def _list_alternating(
    shape: ScheduleShape, group: int, *, hops: int = 2, more: int = 0, paired: bool = False
) -> list[list[Entry]]:
    """Lists a warm-up of `hops` forwards per rank behind and (v-1)g + `more`, then forwards and backwards in turn."""
    turns = _list_turns(shape, group, shape.microbatches)
    lists = []
    for rank in range(shape.ranks):
        ahead = [forward(chunk * shape.ranks + rank, m) for chunk, m in turns]
        back = [backward((shape.chunks - 1 - chunk) * shape.ranks + rank, m) for chunk, m in turns]
        # Megatron's schedules.py: 2 (P - 1 - r) + (v - 1) g forwards before the first backward.
        warm = min(len(turns), hops * (shape.ranks - 1 - rank) + (shape.chunks - 1) * group + more)
        entries = ahead[:warm]
        for both in zip(ahead[warm:], back, strict=False):
            entries += [pair(*both)] if paired else both
        lists.append(entries + back[len(turns) - warm :])
    return lists


def _list_interleaved(shape: ScheduleShape) -> list[list[Entry]]:
    return _list_alternating(shape, group_size(shape))


def _expert_overlap(shape: ScheduleShape) -> list[list[Entry]]:
    return _list_alternating(shape, group_size(shape), more=1, paired=True)


def _list_split(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists forward, input gradient and, from the r-th backward of rank r on, the oldest weight gradient in turn."""
    group = group_size(shape)
    turns = _list_turns(shape, group, shape.microbatches)
    lists = []
    for rank in range(shape.ranks):
        stages = [(shape.chunks - 1 - chunk) * shape.ranks + rank for chunk, _ in turns]
        warm = min(len(turns), shape.ranks - 1 - rank + (shape.chunks - 1) * group)
        entries = [forward(chunk * shape.ranks + rank, m) for chunk, m in turns[:warm]]
        done = 0
        for step, (stage, (_, m)) in enumerate(zip(stages, turns, strict=True)):
            if warm + step < len(turns):
                chunk, ahead = turns[warm + step]
                entries.append(forward(chunk * shape.ranks + rank, ahead))
            entries.append(input_gradient(stage, m))
            if step >= rank:
                entries.append(weight_gradient(stages[done], turns[done][1]))
                done += 1
        entries += [weight_gradient(stages[step], turns[step][1]) for step in range(done, len(turns))]
        lists.append(entries)
    return lists


def _breadth_first(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists all forwards chunk after chunk, then all backwards chunk before chunk, microbatches descending (torch)."""
    every = range(shape.microbatches)
    return [
        [forward(chunk * shape.ranks + rank, m) for chunk in range(shape.chunks) for m in every]
        + [backward(chunk * shape.ranks + rank, m) for chunk in reversed(range(shape.chunks)) for m in reversed(every)]
        for rank in range(shape.ranks)
    ]


def _list_calculon(shape: ScheduleShape) -> list[list[Entry]]:
    """Lists 1F1B, interleaved in full groups of P: slots of a group that is not full stay empty, yet take their
    time."""
    whole = ScheduleShape(shape.ranks, padded_microbatches(shape), shape.chunks)
    return (
        _list_alternating(whole, shape.ranks)
        if shape.chunks > 1
        else _list_alternating(whole, whole.microbatches, hops=1)
    )


def _several_chunks(shape: ScheduleShape) -> None:
    if shape.chunks < 2:
        raise ScheduleError("An interleaved schedule needs two chunks per rank or more; with one it is 1f1b.")


def _check_group(shape: ScheduleShape) -> None:
    _several_chunks(shape)
    ranks, total = shape.ranks, shape.microbatches
    group = shape.group or min(ranks, total)
    if not min(ranks, total) <= group <= total:
        raise ScheduleError(
            f"Megatron refuses a group of {group}: it must be at least P = {ranks} and at most M = {total}."
        )
    rest = _refused_rest(shape)
    if not rest or total % ranks == 0:
        return
    rounds = total // ranks
    if total % rounds == 0:
        other = f"torch would take groups of {total // rounds}: give group={total // rounds}."
    else:
        other = f"torch refuses {total} microbatches in {rounds} rounds, too. A multiple of {ranks} would do."
    raise ScheduleError(
        f"Megatron refuses M mod g = {rest}: {total} microbatches in groups of {group} leave a rest that is neither 0 "
        f"nor at least P = {ranks}. {other}"
    )


def _check_pairs(shape: ScheduleShape) -> None:
    if shape.chunks < 2 and shape.ranks > 1:
        raise ScheduleError("Megatron refuses to overlap expert exchange without virtual stages: chunks of 2 or more.")
    if shape.chunks > 1:
        _check_group(shape)


def _list_remarks(shape: ScheduleShape) -> list[str]:
    total, ranks = shape.microbatches, shape.ranks
    remarks = []
    if total < ranks:
        remarks.append(f"Megatron refuses M < P: {total} microbatches on {ranks} ranks. torch takes one group of all.")
    rest = _refused_rest(shape)
    if rest:
        remarks.append(
            f"Megatron refuses M mod g = {rest}: it must be 0 or at least P = {ranks}. This is torch's order, which "
            f"has no group size: groups of {group_size(shape)}."
        )
    rounds = max(1, total // ranks)
    if total % rounds:
        remarks.append(f"torch refuses {total} microbatches: they do not divide into {rounds} rounds.")
    elif group_size(shape) != total // rounds:
        remarks.append(f"torch has no group size; it would take {total // rounds}.")
    return remarks


def _check_rounds(shape: ScheduleShape) -> None:
    rounds = max(1, shape.microbatches // shape.ranks)
    if shape.group is None and shape.microbatches % rounds:
        raise ScheduleError(
            f"torch refuses {shape.microbatches} microbatches on {shape.ranks} ranks: they do not divide into "
            f"{rounds} rounds."
        )


def _split_group(rule: Callable[[ScheduleShape], list[list[Entry]]]) -> Callable[[ScheduleShape], list[list[Entry]]]:
    """Return the rule with torch's group size as default."""

    def order(shape: ScheduleShape) -> list[list[Entry]]:
        group = shape.group or shape.microbatches // max(1, shape.microbatches // shape.ranks)
        return rule(ScheduleShape(shape.ranks, shape.microbatches, shape.chunks, group))

    return order


RULES: Final = (
    ScheduleRule(
        name="interleaved",
        title="Interleaved 1F1B",
        order=_list_interleaved,
        chunks=None,
        check=_check_group,
        remarks=_list_remarks,
        grouped=True,
        source="Narayanan et al. 2021 (arXiv:2104.04473), section 2.2",
        frameworks={
            "Megatron": "--num-virtual-stages-per-pipeline-rank",
            "torch": "Interleaved1F1B",
            "zero-bubble": "yes",
        },
    ),
    ScheduleRule(
        name="interleaved-ep-overlap",
        title="Interleaved 1F1B, expert exchange overlapped",
        order=_expert_overlap,
        chunks=None,
        check=_check_pairs,
        remarks=_list_remarks,
        grouped=True,
        pairs=True,
        source="NVIDIA/Megatron-LM, core/pipeline_parallel/schedules.py",
        frameworks={"Megatron": "--overlap-moe-expert-parallel-comm"},
    ),
    ScheduleRule(
        name="interleaved-zb",
        title="Interleaved zero bubble",
        order=_split_group(_list_split),
        chunks=None,
        check=_check_rounds,
        grouped=True,
        splits=True,
        source="torch.distributed.pipelining, InterleavedZeroBubble",
        frameworks={"torch": "InterleavedZeroBubble"},
    ),
    ScheduleRule(
        name="looped-bfs",
        title="Breadth first",
        order=_breadth_first,
        chunks=None,
        source="Lamy-Poirier 2022 (arXiv:2211.05953)",
        frameworks={"torch": "LoopedBFS"},
    ),
    ScheduleRule(
        name="calculon-1f1b",
        title="Calculon's 1F1B",
        order=_list_calculon,
        chunks=None,
        slots=padded_microbatches,
        source="Calculon 0.1.0, llm.py `_compute_batch_stats`: what it charges for a last group that is not full",
    ),
)
