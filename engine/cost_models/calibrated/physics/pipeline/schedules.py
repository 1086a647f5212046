"""Pipeline schedules in closed form: idle time, overlapped pairs, activations in flight, copies, messages, limits.

A *rank* is one place of the pipeline; it holds `chunks` pieces of the model. Times are per chunk and microbatch:
forward f, gradient of the inputs b, gradient of the weights w, y = f + b + w all of them, and `pair` an overlapped
forward and backward. A step takes microbatches x chunks x y, less what overlapped pairs save, plus the idle time of the
busiest rank. All functions are elementwise: arrays [rows], or [rows, ranks], that broadcast.

Stages are equal here; what unequal ones change is in `pipeline`. Every formula agrees with a replay of the schedule's
list of actions (`engine.simulate`) to rounding, where its docstring says that it holds.

Sources: 1F1B and interleaving, Narayanan et al. 2021 (arXiv:2104.04473, section 2.2); ZB-H1, Qi et al. 2024
(arXiv:2401.10241); ZB-V, Qi et al. 2024 (arXiv:2405.15362) in the fixed order of torch.distributed.pipelining;
DualPipe, DeepSeek-V3 (arXiv:2412.19437) and DualPipeV in the order of deepseek-ai/DualPipe; combined 1F1B, Megatron
Core's `combined_1f1b` (`--overlap-moe-expert-parallel-comm`). The idle times of ZB-V and DualPipe are stated by us: the
published ones hold for f = b = w, or f = b, only.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints

__all__ = [
    "COMBINED",
    "COPIES",
    "DUALPIPE",
    "DUALPIPE_V",
    "INTERLEAVED",
    "ONE_F_ONE_B",
    "PAIRED",
    "SCHEDULES",
    "SPLIT",
    "V_SHAPED",
    "ZB_H1",
    "ZB_V",
    "activations_in_flight",
    "among",
    "chunks_per_rank",
    "copies",
    "hops",
    "idle",
    "interleaved_where",
    "makespan",
    "messages",
    "overlapped_pairs",
    "plain_schedule",
    "refusals",
]

SCHEDULES: Final = ("1f1b", "interleaved", "zb_h1", "zb_v", "dualpipe", "dualpipev", "combined_1f1b")
"""Schedules by name; a schedule is a position here."""
ONE_F_ONE_B, INTERLEAVED, ZB_H1, ZB_V, DUALPIPE, DUALPIPE_V, COMBINED = range(len(SCHEDULES))

V_SHAPED: Final = (ZB_V, DUALPIPE_V)
"""Schedules whose rank r holds the chunks r and 2P - 1 - r of 2P: the first holds both ends of the model."""
PAIRED: Final = (DUALPIPE, DUALPIPE_V, COMBINED)
"""Schedules in which a forward and a backward of two microbatches run together and hide each other's communication."""
SPLIT: Final = (ZB_H1, ZB_V, DUALPIPE, DUALPIPE_V)
"""Schedules that compute gradients of weights and of inputs separately."""
COPIES: Final = 2.0
"""Copies of its parameters that DualPipe holds: stage r in one direction, stage P - 1 - r in the other [copies].
Source: DeepSeek-V3 (arXiv:2412.19437, section 3.2.1)."""

Number = Any
"""Arrays of any kind, or numbers."""


def among(schedule: Number, chosen: tuple[int, ...]) -> Flags:
    """Return where a schedule is one of the chosen ones.

    Args:
        schedule: positions in `SCHEDULES`, of any shape.
        chosen: positions in `SCHEDULES`, at least one.
    """
    # Two or three comparisons take a tenth of the time of looking them up.
    schedule = np.asarray(schedule)
    found: Flags = np.asarray(schedule == chosen[0])
    for each in chosen[1:]:
        found = found | (schedule == each)
    return np.asarray(found)


def _row_maximum(*values: Number) -> Floats:
    """Return the largest value of each row."""
    found = np.asarray(values[0], np.float64)
    for value in values[1:]:
        found = np.maximum(found, value)
    return found


def idle(
    schedule: Number,
    stages: Number,
    forward: Number,
    inputs: Number,
    weights: Number,
    pair: Number,
    *,
    own: tuple[Number, Number, Number] | None = None,
) -> Floats:
    """Returns how long the rank which ends last waits for others, with equal stages and no time for messages [s].

    It holds for 1F1B with any number of microbatches M; interleaved and combined where P divides M; ZB-H1 for M >= P;
    ZB-V for M >= 2P - 1 and b >= 0.65 f (below that it is up to half a percent of the step low); DualPipe for an even P
    of 4 at least and DualPipeV for P of 2 at least, where M >= 2P.

    Args:
        schedule: positions in `SCHEDULES`. stages: ranks P of the pipeline.
        stages: ranks P of the pipeline.
        forward, inputs, weights: seconds f, b and w of a chunk and microbatch: forward, gradients of inputs, gradients
            of weights [s].
        pair: seconds of an overlapped forward and backward of a chunk [s], at least as long as either; f + b + w where
            nothing overlaps.
        own: f, b and w of the rank that waits, if its chunks are not equal to the others' [s]. It waits for the work of
            others and fills that time with its own: the terms below that shorten it.
    """
    others = np.asarray(stages, np.float64) - 1.0
    f, b, w = forward, inputs, weights
    own_f, own_b, own_w = (f, b, w) if own is None else own
    # 1F1B and interleaved, per chunk: (P - 1)(f + b + w) (Narayanan et al. 2021, section 2.2).
    found = others * (f + b + w)
    schedule = np.asarray(schedule)
    if np.any(schedule == ZB_H1):
        # ZB-H1: (P - 1) max(f, b, f + b - w); Qi et al. 2024 publish (P - 1)(f + b - w), which needs w <= min(b, f).
        found = np.where(schedule == ZB_H1, others * _row_maximum(f, b, f + b - own_w), found)
    if np.any(schedule == ZB_V):
        # ZB-V in its fixed order: the longest of the paths that bind it; at f = b = w all of it is (P - 1) f.
        turning = _row_maximum(
            others * b,
            2.0 * others * (b - own_w),
            f + (others - 1.0) * w,
            b + (others - 1.0) * w,
            (2.0 * others - 1.0) * f - (others - 1.0) * own_b,
            (2.0 * others - 1.0) * f + b - 2.0 * others * own_w,
            2.0 * others * f - (2.0 * others + 1.0) * own_w,
        )
        found = np.where(schedule == ZB_V, turning, found)
    both = among(schedule, (DUALPIPE, DUALPIPE_V))
    if both.any():
        # With H = P/2 in DualPipe and P in DualPipeV, and H - 1 in `before`:
        # (H - 1)(FB + f - w - min(b, w)) + max(0, (H - 1)(b - f) - f).
        before = np.where(schedule == DUALPIPE, (others + 1.0) / 2.0, others + 1.0) - 1.0
        waiting = before * (pair + f - own_w - np.minimum(own_b, own_w))
        waiting = waiting + np.maximum(before * (b - own_f) - own_f, 0.0)
        found = np.where(both, waiting, found)
    return np.asarray(np.where(others > 0, found, 0.0))


def overlapped_pairs(schedule: Number, stages: Number, microbatches: Number, chunks: Number) -> Floats:
    """Return the number of forward-backward pairs of a chunk that overlap on the rank which ends last [pairs].

    Combined 1F1B runs (v - 1) P + 1 chunks before the first pair, in addition to the chunks that other ranks wait for.
    Each pair saves its overlap: y - pair, with y seconds for both passes separately.

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
        stages: ranks P of the pipeline.
        microbatches: microbatches M of a step.
        chunks: chunks v of the model per rank.
    """
    p, m, v = (np.asarray(value, np.float64) for value in (stages, microbatches, chunks))
    found = np.select(
        [np.asarray(schedule) == each for each in PAIRED],
        [m - p - 1.0, 2.0 * m - 2.0 * p - 1.0, m * v - np.minimum(m * v, (v - 1.0) * p + 1.0)],
        0.0,
    )
    return np.asarray(np.where(p > 1, np.maximum(found, 0.0), 0.0))


def makespan(
    schedule: Number,
    stages: Number,
    microbatches: Number,
    chunks: Number,
    *,
    forward: Number,
    inputs: Number,
    weights: Number,
    pair: Number | None = None,
) -> Floats:
    """Returns the seconds from the first forward to the last gradient, with equal stages and no time for messages [s].

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
        stages: ranks P of the pipeline.
        microbatches: microbatches M of a step.
        chunks: chunks v of the model per rank, 1 for DualPipe, where a rank works on either of its two stages for half
            of the microbatches.
        forward, inputs, weights: seconds f, b and w of a chunk and microbatch: forward, gradients of inputs, gradients
            of weights [s].
        pair: seconds of an overlapped forward and backward of a chunk, as for `idle` [s]; None where nothing overlaps.
    """
    whole = np.asarray(forward, np.float64) + inputs + weights
    together = whole if pair is None else pair
    # T = M v (f + b + w) - pairs (f + b + w - FB) + idle.
    busy = microbatches * np.asarray(chunks, np.float64) * whole
    saved = overlapped_pairs(schedule, stages, microbatches, chunks) * (whole - together)
    return np.asarray(busy - saved + idle(schedule, stages, forward, inputs, weights, together))


def activations_in_flight(
    schedule: Number, stages: Number, rank: Number, microbatches: Number, chunks: Number
) -> Floats:
    """Returns the most chunks whose activations a rank keeps at once, from forward to gradient of weights [chunks].

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
        stages: ranks P of the pipeline.
        rank: position from 0.
        microbatches: microbatches M of a step.
        chunks: chunks v per rank, as for `makespan`; the chunks that are counted are these. Groups of interleaved
            microbatches have as many as there are stages.
    """
    p, m, v = (np.asarray(value, np.float64) for value in (stages, microbatches, chunks))
    after = p - 1.0 - rank
    schedule = np.asarray(schedule)
    # 1F1B: P - r. Interleaved: warm-up of 2 (P - 1 - r) + (v - 1) P chunks, and one more.
    found = np.where(v > 1, 2.0 * after + (v - 1.0) * p + 1.0, after + 1.0)
    if np.any(schedule > INTERLEAVED):
        # Waiting gradients of weights keep their activations: P in ZB-H1, 2 P chunks in ZB-V. A pair of DualPipe or of
        # combined 1F1B holds one more, since its forward starts before its backward ends.
        found = np.select(
            [schedule == each for each in (ZB_H1, ZB_V, DUALPIPE, DUALPIPE_V, COMBINED)],
            [p, 2.0 * p, p + 1.0, 2.0 * p + 1.0, found + 1.0],
            found,
        )
    return np.asarray(np.minimum(np.where(p > 1, found, 1.0), m * v))


def copies(schedule: Number) -> Floats:
    """Return the number of copies of a stage's parameters [copies].

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
    """
    return np.asarray(np.where(np.asarray(schedule) == DUALPIPE, COPIES, 1.0))


def messages(schedule: Number, stages: Number, microbatches: Number, chunks: Number) -> Floats:
    """Return the number of messages of activations and gradients between ranks in a step, over all ranks [messages].

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
        stages: ranks P of the pipeline.
        microbatches: microbatches M of a step.
        chunks: chunks v of the model per rank.
    """
    p, m, v = (np.asarray(value, np.float64) for value in (stages, microbatches, chunks))
    turned = among(schedule, V_SHAPED)
    # The turn of a V stays on one rank.
    return np.asarray(2.0 * m * np.where(turned, 2.0 * (p - 1.0), v * p - 1.0))


def hops(schedule: Number, stages: Number, microbatches: Number, chunks: Number) -> Floats:
    """Return the number of messages whose time adds to a step, when messages overlap computation [messages].

    Holds for equal stages and short messages: 1F1B for any; interleaved up to the shorter of forward and backward,
    where P divides M; combined 1F1B where P divides M (one less for M = P odd); ZB-H1 and ZB-V up to 0.3 f, where M > P
    or M >= 2P - 1; DualPipe and DualPipeV up to about 0.1 f, where P divides M. In 1F1B a round trip holds P
    microbatches, so each waits for its share of it; the messages of a pair must arrive before the next pair starts.

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
        stages: ranks P of the pipeline.
        microbatches: microbatches M of a step.
        chunks: chunks v of the model per rank.
    """
    p, m, v = (np.asarray(value, np.float64) for value in (stages, microbatches, chunks))
    fill = 2.0 * (p - 1.0)
    around = fill + 2.0 * np.floor((p - 1.0) * (m - 1.0) / p)
    found = np.select(
        [np.asarray(schedule) == each for each in range(len(SCHEDULES))],
        [
            around,
            2.0 * (v * p - 1.0),
            2.0 * fill,
            5.0 * p - 7.0,
            m * (p - 1.0) / p + 1.5 * (p - 2.0),
            2.0 * m * (p - 1.0) / p + 2.0 * (p - 2.0),
            m * v + (v + 1.0) * p - 4.0,
        ],
    )
    return np.asarray(np.where(p > 1, found, 0.0))


def chunks_per_rank(schedule: Number) -> Floats:
    """Return the number of chunks per rank of a schedule, 0 if any number above 1 is possible [chunks].

    Args:
        schedule: positions in `SCHEDULES`.
    """
    return np.asarray((1.0, 0.0, 1.0, 2.0, 1.0, 2.0, 0.0))[np.asarray(schedule, np.intp)]


def plain_schedule(chunks: Number) -> Ints:
    """Returns the schedule of executions that do not name one: 1F1B, interleaved where stages have several chunks.

    Args:
        chunks: chunks v of the model per rank.
    """
    return np.asarray(np.where(np.asarray(chunks) > 1, INTERLEAVED, ONE_F_ONE_B))


def interleaved_where(schedule: Number, chunks: Number) -> Ints:
    """Return schedules with 1F1B replaced by interleaved 1F1B where stages have several chunks.

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
        chunks: chunks v of the model per rank.
    """
    return np.asarray(np.where(np.asarray(schedule) == ONE_F_ONE_B, plain_schedule(chunks), schedule))


def refusals(schedule: Number, stages: Number, microbatches: Number, chunks: Number) -> dict[str, Flags]:
    """Return where a schedule cannot run, by the code of the reason (`engine.executions.reasons`).

    Least numbers of microbatches M for P ranks: P with ZB-H1, 2P - 1 with ZB-V, whose fixed order is tight from there
    on, 2P with DualPipe and DualPipeV. DualPipe also needs even P and M; Megatron's combined 1F1B a multiple of P.

    Args:
        schedule: positions in `SCHEDULES`, of any shape that broadcasts with the others.
        stages: ranks P of the pipeline.
        microbatches: microbatches M of a step.
        chunks: chunks v of the model per rank.
    """
    schedule = np.asarray(schedule)
    p, m = np.asarray(stages), np.asarray(microbatches)
    wanted = chunks_per_rank(schedule)
    wrong: Flags = np.where(wanted > 0, np.asarray(chunks) != wanted, np.asarray(chunks) < 2)
    # Of several chunks, 1F1B is interleaved.
    wrong = wrong & (schedule != ONE_F_ONE_B)
    least = np.select(
        [schedule == ZB_H1, schedule == ZB_V, among(schedule, (DUALPIPE, DUALPIPE_V))], [p, 2 * p - 1, 2 * p], 1
    )
    few: Flags = m < least
    odd: Flags = (schedule == DUALPIPE) & ((p % 2 != 0) | (m % 2 != 0))
    ragged: Flags = (schedule == COMBINED) & (m % np.maximum(p, 1) != 0)
    alone: Flags = (p == 1) & (schedule != ONE_F_ONE_B)
    return {
        "schedule_needs_pipeline": alone,
        "schedule_against_interleaving": wrong & ~alone,
        "schedule_needs_microbatches": few & ~alone,
        "schedule_needs_even": odd & ~alone,
        "schedule_needs_whole_groups": ragged & ~alone,
    }
