"""Published formulas of a schedule's step time for equal stages, with the numbers for which each one holds.

They are shown next to a replay, whose own closed form is its critical path. T is the makespan, P ranks, M microbatches,
v chunks per rank, g the group; f, b, w a forward and the two gradients of a chunk, x = b + w, FB an overlapped pair, c
a send that occupies no rank.

Sources: as in the modules of `engine.simulate.schedules`. Extra times of sends, the idle time of DualPipe for any f, b
and w and the limits of validity were found by replaying grids of numbers; the published idle time of DualPipe is the
case f = b and w <= b of the one here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.simulate.events import Mode
from engine.simulate.replay import Replay
from engine.simulate.schedules.contract import ScheduleShape

__all__ = ["ClosedForm", "Numbers", "closed_form", "published"]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Inputs of a formula: durations of a chunk and of a send [s]."""

    shape: ScheduleShape
    forward: float
    input_gradient: float
    weight_gradient: float
    pair: float | None = None
    send: float = 0.0

    @property
    def backward(self) -> float:
        """A whole backward [s]."""
        return self.input_gradient + self.weight_gradient

    @property
    def both(self) -> float:
        """A forward and a backward [s]."""
        return self.forward + self.backward

    @property
    def together(self) -> float:
        """An overlapped pair [s]."""
        return self.both if self.pair is None else self.pair

    @property
    def pairs_hold(self) -> bool:
        """Return True if a pair takes at least as long as its forward and as its backward."""
        return self.together >= max(self.forward, self.backward)

    @property
    def equal(self) -> bool:
        """Return True if all three durations are the same."""
        return self.forward == self.input_gradient == self.weight_gradient


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A formula for the makespan."""

    words: str
    holds_for: str
    makespan: Callable[[Numbers], float]
    holds: Callable[[Numbers], bool]
    sends: Callable[[Numbers], float | None]
    """Extra time of sends [s]; None if it is not published."""

    def value(self, numbers: Numbers) -> float | None:
        """Returns the makespan [s], or None where the formula does not hold."""
        if not self.holds(numbers):
            return None
        extra = self.sends(numbers) if numbers.send and numbers.shape.ranks > 1 else 0.0
        return None if extra is None else self.makespan(numbers) + extra


def _no_extra_time(numbers: Numbers) -> float | None:
    del numbers
    return None


def _fill_and_drain(numbers: Numbers) -> float:
    return 2 * (numbers.shape.ranks - 1) * numbers.send


def _one_chunk(numbers: Numbers) -> float:
    # Huang et al. 2018, section 2.3; Narayanan et al. 2020, section 3: (M + P - 1)(f + x).
    return (numbers.shape.microbatches + numbers.shape.ranks - 1) * numbers.both


def _round_trips(numbers: Numbers) -> float:
    """Each microbatch of 1F1B waits: the way to the last rank and back holds just P of them."""
    p, m = numbers.shape.ranks, numbers.shape.microbatches
    return 2 * numbers.send * (p - 1 + (p - 1) * (m - 1) // p)


def _eager_sends(numbers: Numbers) -> float | None:
    return _fill_and_drain(numbers) if numbers.send <= numbers.both / 2 else None


def _one_f_one_b_makespan(numbers: Numbers) -> float:
    shape = numbers.shape
    # With M < P the path of one microbatch through all v P stages binds, and M - 1 more follow it.
    if shape.microbatches < shape.ranks:
        return (shape.chunks * shape.ranks + shape.microbatches - 1) * numbers.both
    # Narayanan et al. 2021, section 2.2: idle for P - 1 chunks, 1/v of the time without interleaving.
    return (shape.microbatches * shape.chunks + shape.ranks - 1) * numbers.both


def _interleaved_sends(numbers: Numbers) -> float | None:
    shape, shorter = numbers.shape, min(numbers.forward, numbers.backward)
    group = shape.group or shape.ranks
    if shape.microbatches % group:
        return None
    if group == shape.ranks and numbers.send <= shorter:
        return 2 * (shape.chunks * shape.ranks - 1) * numbers.send
    if group == 2 * shape.ranks and numbers.send <= shorter / 2:
        return _fill_and_drain(numbers)
    return None


def _breadth_first_sends(numbers: Numbers) -> float | None:
    p, m = numbers.shape.ranks, numbers.shape.microbatches
    return _fill_and_drain(numbers) if numbers.send <= (m - p) * min(numbers.forward, numbers.backward) / p else None


def _zb_h1(numbers: Numbers) -> float:
    f, b, w = numbers.forward, numbers.input_gradient, numbers.weight_gradient
    return numbers.shape.microbatches * numbers.both + (numbers.shape.ranks - 1) * max(f, b, f + b - w)


def _zb_h2(numbers: Numbers) -> float:
    f, b, w = numbers.forward, numbers.input_gradient, numbers.weight_gradient
    return numbers.shape.microbatches * numbers.both + (numbers.shape.ranks - 1) * max(f, f + b - 2 * w, b - f)


def _split_chunks(numbers: Numbers) -> float:
    shape = numbers.shape
    # With f = b = w a rank waits for the P - 1 forwards before its first one alone.
    return shape.microbatches * shape.chunks * numbers.both + (shape.ranks - 1) * numbers.forward


def _when_equal(share: float, hops: Callable[[int], int]) -> Callable[[Numbers], float | None]:
    """Return the extra time of `hops` sends, valid up to a share of f where f = b = w."""

    def extra(numbers: Numbers) -> float | None:
        if not numbers.equal or numbers.send > share * numbers.forward:
            return None
        return hops(numbers.shape.ranks) * numbers.send

    return extra


def _zb_h1_sends(numbers: Numbers) -> float | None:
    if numbers.shape.microbatches <= numbers.shape.ranks:
        return None
    return _when_equal(0.3, lambda p: 4 * (p - 1))(numbers)


def _overlapped_pairs_makespan(numbers: Numbers) -> float:
    return numbers.shape.ranks * numbers.both + (numbers.shape.microbatches - 1) * numbers.together


def _expert_pairs(numbers: Numbers) -> float:
    shape = numbers.shape
    chunks = shape.microbatches * shape.chunks
    # K chunks run before the first pair: one more than the warm-up of the last rank without pairs.
    alone = min(chunks, (shape.chunks - 1) * (shape.group or shape.ranks) + 1)
    return (shape.ranks - 1 + alone) * numbers.both + (chunks - alone) * numbers.together


def _expert_sends(numbers: Numbers) -> float | None:
    """Each hop of the steady phase waits, as a pair ends at once with both of its results."""
    shape, p = numbers.shape, numbers.shape.ranks
    if p % 2 or shape.microbatches % p or shape.group not in (None, p):
        return None
    if numbers.send > min(numbers.forward, numbers.backward):
        return None
    return (shape.chunks * (shape.microbatches + p) + p - 4) * numbers.send


def _dualpipe_makespan(numbers: Numbers, half: int, chunks: int) -> float:
    f, b, w, pair = numbers.forward, numbers.input_gradient, numbers.weight_gradient, numbers.together
    p, m = numbers.shape.ranks, numbers.shape.microbatches
    # DeepSeek-V3, table 2: (P/2 - 1)(F&B + B - 3W), which is the case f = b and w <= b of it.
    idle = (half - 1) * (pair + f - w - min(b, w)) + max(0.0, (half - 1) * (b - f) - f)
    # All forwards and backwards overlap but those of the phases that fill and drain.
    pairs = m - p - 1 if chunks == 1 else 2 * m - 2 * p - 1
    return m * chunks * numbers.both - pairs * (numbers.both - pair) + idle


def _chimera_makespan(numbers: Numbers) -> float:
    p, m = numbers.shape.ranks, numbers.shape.microbatches
    waves = -(-m // p)
    waits = max(numbers.forward, numbers.backward) + (waves - 1) * abs(numbers.backward - numbers.forward)
    return m * numbers.both + (p - 2) * waits


def _calculon_makespan(numbers: Numbers) -> float:
    shape = numbers.shape
    # Calculon 0.1.0, llm.py: (v - 1)(P - M mod P) chunks of waiting.
    empty = -shape.microbatches % shape.ranks if shape.chunks > 1 else 0
    slots = shape.microbatches * shape.chunks + (shape.chunks - 1) * empty
    return (slots + shape.ranks - 1) * numbers.both


def _is_always_valid(numbers: Numbers) -> bool:
    del numbers
    return True


def _is_full(numbers: Numbers) -> bool:
    return numbers.shape.microbatches >= numbers.shape.ranks


def _twice_full(numbers: Numbers) -> bool:
    return numbers.shape.microbatches >= 2 * numbers.shape.ranks - 1


def _whole_groups(numbers: Numbers) -> bool:
    shape = numbers.shape
    return shape.microbatches < shape.ranks or shape.microbatches % (shape.group or shape.ranks) == 0


_ANY: Final = "any M"
_CLOSED: Final = {
    "gpipe": ClosedForm("T = (M + P − 1)(f + x) + 2(P − 1)c", _ANY, _one_chunk, _is_always_valid, _fill_and_drain),
    "1f1b": ClosedForm(
        "T = (M + P − 1)(f + x) + 2c[(P − 1) + ⌊(P − 1)(M − 1)/P⌋]", _ANY, _one_chunk, _is_always_valid, _round_trips
    ),
    "distir-1f1b": ClosedForm(
        "T = (M + P − 1)(f + x)", "f = x, any M", _one_chunk, lambda n: n.forward == n.backward, _no_extra_time
    ),
    "eager-1f1b": ClosedForm(
        "T = (M + P − 1)(f + x) + 2(P − 1)c", "c up to (f + x)/2", _one_chunk, _is_always_valid, _eager_sends
    ),
    "1f1b-overlap": ClosedForm(
        "T = P(f + x) + (M − 1)FB",
        "M from 2P − 1, FB from max(f, x)",
        _overlapped_pairs_makespan,
        lambda n: _twice_full(n) and n.pairs_hold,
        _no_extra_time,
    ),
    "interleaved": ClosedForm(
        "T = (Mv + P − 1)(f + x) + 2(vP − 1)c",
        "g dividing M; with g = 2P sends take 2(P − 1)c; c up to min(f, x)",
        _one_f_one_b_makespan,
        _whole_groups,
        _interleaved_sends,
    ),
    "calculon-1f1b": ClosedForm(
        "T = (Mv + P − 1)(f + x), and (v − 1)(f + x) for each slot that the last group lacks",
        _ANY,
        _calculon_makespan,
        _is_always_valid,
        _no_extra_time,
    ),
    "interleaved-ep-overlap": ClosedForm(
        "T = (P − 1 + K)(f + x) + (Mv − K)FB + [v(M + P) + P − 4]c, K = (v − 1)g + 1",
        "g dividing M, FB from max(f, x); with sends g = P even, c up to min(f, x)",
        _expert_pairs,
        lambda n: _is_full(n) and _whole_groups(n) and n.pairs_hold,
        _expert_sends,
    ),
    "interleaved-zb": ClosedForm(
        "T = Mv(f + x) + (P − 1)f",
        "f = b = w, P dividing M",
        _split_chunks,
        lambda n: n.equal and n.shape.microbatches % n.shape.ranks == 0 and not n.shape.group,
        _no_extra_time,
    ),
    "looped-bfs": ClosedForm(
        "T = (Mv + P − 1)(f + x) + 2(P − 1)c",
        "M from P, c up to (M − P) min(f, x)/P",
        _one_f_one_b_makespan,
        _is_full,
        _breadth_first_sends,
    ),
    "zb-h1": ClosedForm(
        "T = M(f + x) + (P − 1) max(f, b, f + b − w) + 4(P − 1)c",
        "M from P; with sends f = b = w, M > P, c up to 0.3f",
        _zb_h1,
        _is_full,
        _zb_h1_sends,
    ),
    "zb-h2": ClosedForm(
        "T = M(f + x) + (P − 1) max(f, f + b − 2w, b − f) + (P − 1)c",
        "M from 2P − 1; with sends f = b = w, c up to f",
        _zb_h2,
        _twice_full,
        _when_equal(1.0, lambda p: p - 1),
    ),
    "zbv": ClosedForm(
        "T = 2M(f + x) + (P − 1)f + (5P − 7)c",
        "f = b = w, M from 2P − 1, c up to 0.3f",
        _split_chunks,
        lambda n: n.equal and _twice_full(n) and n.shape.ranks > 1,
        _when_equal(0.3, lambda p: 5 * p - 7),
    ),
    "dualpipe": ClosedForm(
        "T = M(f + x) − (M − P − 1)(f + x − FB) + (P/2 − 1)(FB + f − w − min(b, w)) + max(0, (P/2 − 1)(b − f) − f)",
        "P from 4, M from 2P, FB from max(f, x)",
        lambda n: _dualpipe_makespan(n, n.shape.ranks // 2, 1),
        lambda n: n.shape.ranks >= 4 and n.pairs_hold,
        _no_extra_time,
    ),
    "dualpipev": ClosedForm(
        "T = 2M(f + x) − (2M − 2P − 1)(f + x − FB) + (P − 1)(FB + f − w − min(b, w)) + max(0, (P − 1)(b − f) − f)",
        "P from 2, M from 2P, FB from max(f, x)",
        lambda n: _dualpipe_makespan(n, n.shape.ranks, 2),
        lambda n: n.shape.ranks >= 2 and n.pairs_hold,
        _no_extra_time,
    ),
    "chimera": ClosedForm(
        "T = M(f + x) + (P − 2)[max(f, x) + (M/P − 1)|x − f|]",
        "M = P or 2P",
        _chimera_makespan,
        _is_always_valid,
        _no_extra_time,
    ),
}


def closed_form(schedule: str) -> ClosedForm | None:
    """Return the formula of a schedule; None for planned schedules, V-Half, V-Min and V-1F1B.

    Args:
        schedule: name of a schedule, such as "1f1b"; what other programs call it is not known here.
    """
    return _CLOSED.get(schedule)


def published(found: Replay) -> tuple[str, float | None] | None:
    """Returns the formula of a replayed schedule in words and its makespan [s], None where it does not hold.

    Nothing is returned for an order of one's own and for schedules without a formula. Stages must be equal, and sends
    occupy no rank.

    Args:
        found: a replayed schedule.
    """
    form = closed_form(found.rule.name) if found.rule else None
    if form is None or found.shape is None:
        return None
    times, sends = found.durations, found.sends
    every = [times.forward, times.input_gradient, times.weight_gradient, *([] if times.pair is None else [times.pair])]
    if any(float(np.ptp(each)) > 0 for each in every) or (sends.mode is Mode.BLOCK and sends.time):
        return form.words, None
    numbers = Numbers(
        found.shape,
        float(every[0][0]),
        float(every[1][0]),
        float(every[2][0]),
        None if times.pair is None else float(times.pair[0]),
        0.0 if sends.mode is Mode.NONE else float(sends.time),
    )
    return form.words, form.value(numbers)
