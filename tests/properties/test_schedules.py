"""The replay of schedules against independent statements: the longest path of a graph, and closed forms."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cost_models.calibrated.physics.pipeline import schedules
from engine.simulate import NAMES, ScheduleError, replay
from engine.simulate.closed_forms import Numbers, closed_form
from engine.simulate.schedules.contract import ScheduleShape, StagePlacement
from engine.simulate.schedules.registry import rule

SEVERAL = ("interleaved", "interleaved-ep-overlap", "interleaved-zb", "looped-bfs", "calculon-1f1b")


def longest_path(lines: list[str], stages: int, times: dict[str, list[float]], latency: float, *, block: bool) -> float:
    """The end of the last action: every word of the lists as a node, weighed and followed one by one.

    Written from the rules in words, without looking at the replay: a forward after that of the stage before, a gradient
    after the stage's own forward and the gradient of the stage behind, weights after their gradient.
    """
    words = [line.split() for line in lines]
    home: dict[tuple[str, int, int], tuple[int, int]] = {}
    for rank, row in enumerate(words):
        for place, word in enumerate(row):
            for part in word.split("+"):
                home[action(part, rank)] = rank, place
    done: dict[tuple[int, int], tuple[float, float]] = {}

    def ends(rank: int, place: int) -> tuple[float, float]:
        """When a word's results are there, and when its rank can go on."""
        parts = [action(part, rank) for part in words[rank][place].split("+")]
        start = done[rank, place - 1][1] if place else 0.0
        for kind, stage, microbatch in parts:
            for needed in inputs(kind, stage, microbatch, stages, home):
                other = home[needed]
                start = max(start, done[other][0] + (latency if other[0] != rank else 0.0))
        if len(parts) == 2:
            length = times["FB"][parts[0][1]] if "FB" in times else sum(times[k][s] for k, s, _ in parts)
        else:
            length = times[parts[0][0]][parts[0][1]]
        sent = 0
        for kind, stage, microbatch in parts:
            after = stage + 1 if kind == "F" else stage - 1
            whole = ("BW", after, microbatch)
            receiver = ("F", after, microbatch) if kind == "F" else whole if whole in home else ("B", after, microbatch)
            sent += kind != "W" and 0 <= after < stages and home[receiver][0] != rank
        return start + length, start + length + (latency * sent if block else 0.0)

    at = [0] * len(words)
    while any(at[rank] < len(row) for rank, row in enumerate(words)):
        for rank, row in enumerate(words):
            if at[rank] < len(row):
                needs = [
                    home[needed]
                    for part in row[at[rank]].split("+")
                    for needed in inputs(*action(part, rank), stages, home)
                ]
                if all(each in done for each in needs):
                    done[rank, at[rank]] = ends(rank, at[rank])
                    at[rank] += 1
    return max(free for _, free in done.values())


def action(word: str, rank: int) -> tuple[str, int, int]:
    kind = word.rstrip("0123456789.")
    microbatch, _, stage = word[len(kind) :].partition(".")
    return kind, int(stage) if stage else rank, int(microbatch)


def inputs(kind: str, stage: int, microbatch: int, stages: int, home: Any) -> list[tuple[str, int, int]]:
    if kind == "F":
        return [("F", stage - 1, microbatch)] if stage else []
    if kind == "W":
        return [("B", stage, microbatch)]
    found = [("F", stage, microbatch)]
    if stage < stages - 1:
        behind = ("BW", stage + 1, microbatch)
        found.append(behind if behind in home else ("B", stage + 1, microbatch))
    return found


def random_order(random: Random) -> tuple[list[str], int, int, int, str]:
    """Lists that can run: actions are taken in any order in which what they need is done."""
    placement = random.choice(list(StagePlacement))
    ranks = random.randint(1, 5) if placement is StagePlacement.LOOP else 2 * random.randint(1, 2)
    chunks = random.randint(1, 3) if placement is StagePlacement.LOOP else 2 if placement is StagePlacement.V else 1
    stages, microbatches = ranks * chunks, random.randint(1, 6)
    split = {(s, m): random.random() < 0.5 for s in range(stages) for m in range(microbatches)}
    left = {("F", s, m) for s, m in split} | {("B" if split[s, m] else "BW", s, m) for s, m in split}
    left |= {("W", s, m) for s, m in split if split[s, m]}
    home: dict[tuple[str, int, int], None] = dict.fromkeys(left)
    lines: list[list[str]] = [[] for _ in range(ranks)]
    done: set[tuple[str, int, int]] = set()
    while left:
        ready = sorted(
            each for each in left if all(need in done for need in inputs(each[0], each[1], each[2], stages, home))
        )
        kind, stage, microbatch = random.choice(ready)
        left.discard((kind, stage, microbatch))
        done.add((kind, stage, microbatch))
        rank = placement.rank(stage, microbatch, ranks, microbatches)
        lines[rank].append(f"{kind}{microbatch}.{stage}")
    return [" ".join(line) for line in lines], ranks, microbatches, chunks, placement.value


@given(random=st.randoms(use_true_random=False))
def test_the_replay_is_the_longest_path_of_random_orders(random: Random) -> None:
    lines, ranks, microbatches, chunks, placement = random_order(random)
    stages = ranks * chunks if placement != "bidir" else ranks
    times = {kind: [random.uniform(0.1, 2.0) for _ in range(stages)] for kind in "FBW"}
    latency, mode = random.choice((0.0, 0.2, 1.5)), random.choice(("overlap", "block"))
    found = replay(
        lines,
        stages=ranks,
        microbatches=microbatches,
        chunks=chunks,
        times=times,
        sends={"mode": mode, "c": latency},
        placement=placement,
    )
    whole = times | {"BW": [b + w for b, w in zip(times["B"], times["W"], strict=True)]}
    expected = longest_path(found.ranks, stages, whole, latency, block=mode == "block")
    assert found.makespan == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@given(random=st.randoms(use_true_random=False))
def test_schedules_are_the_longest_path_of_their_lists(name: str, random: Random) -> None:
    ranks, microbatches = random.randint(1, 6), random.randint(1, 16)
    chunks = random.randint(2, 3) if name in SEVERAL else 1
    times: dict[str, Any] = {kind: random.choice((0.5, 1.0, 1.25, 2.0)) for kind in ("F", "B", "W")}
    if random.random() < 0.5:
        times["FB"] = times["F"] + times["B"]
    latency, mode = random.choice((0.0, 0.25)), random.choice(("overlap", "block"))
    try:
        found = replay(
            name,
            stages=ranks,
            microbatches=microbatches,
            chunks=chunks,
            times=times,
            sends={"mode": mode, "c": latency},
        )
    except ScheduleError:
        return
    if name == "calculon-1f1b" and microbatches % ranks:
        return  # Empty slots of its last group take time, but are no actions of the lists.
    stages = found.order.stages
    whole = {kind: [value] * stages for kind, value in (times | {"BW": times["B"] + times["W"]}).items()}
    expected = longest_path(found.ranks, stages, whole, latency, block=mode == "block")
    assert found.makespan == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if closed_form(name)])
@given(random=st.randoms(use_true_random=False))
def test_closed_forms_are_the_replay_where_they_hold(name: str, random: Random) -> None:
    form = closed_form(name)
    assert form is not None
    ranks = random.randint(1, 8)
    microbatches = random.choice((random.randint(1, 24), ranks * random.randint(1, 4)))
    chunks = random.randint(2, 4) if name in SEVERAL else 2 if name in ("zbv", "dualpipev") else 1
    group = 2 * ranks if name == "interleaved" and random.random() < 0.3 else None
    f, b, w = random.choice(((1.0, 1.0, 1.0), tuple(random.choice((0.5, 0.75, 1.0, 1.5, 2.0)) for _ in range(3))))
    pair = random.choice((None, max(f, b + w), 0.9 * (f + b + w))) if name in PAIRED else None
    send = random.choice((0.0, 0.0, 0.1, 0.25, 1.0))
    times = {"F": f, "B": b, "W": w} | ({} if pair is None else {"FB": pair})
    try:
        found = replay(
            name,
            stages=ranks,
            microbatches=microbatches,
            chunks=chunks,
            times=times,
            sends={"mode": "overlap", "c": send},
            group=group,
        )
    except ScheduleError:
        return
    value = form.value(Numbers(ScheduleShape(ranks, microbatches, chunks, group), f, b, w, pair, send))
    if value is not None:
        assert found.makespan == pytest.approx(value, rel=1e-12), (
            ranks,
            microbatches,
            chunks,
            group,
            f,
            b,
            w,
            pair,
            send,
        )


PAIRED = ("1f1b-overlap", "interleaved-ep-overlap", "dualpipe", "dualpipev")


def test_unequal_stages_wait_for_the_slowest_wherever_it_stands() -> None:
    """1F1B, M >= P, is at least the largest of these sums, and just that with one stage unlike the others."""
    random = Random(5)
    for _ in range(60):
        ranks = random.randint(2, 6)
        microbatches = random.randint(ranks, 4 * ranks)
        f, x = [1.0] * ranks, [2.0] * ranks
        odd = random.choice((0, ranks - 1))
        f[odd], x[odd] = random.uniform(0.5, 2.0), random.uniform(1.0, 4.0)
        found = replay("1f1b", stages=ranks, microbatches=microbatches, times={"F": f, "B": x, "W": 0.0})
        y = [a + b for a, b in zip(f, x, strict=True)]
        sums = []
        for stage in range(ranks):
            behind, after = sum(y[stage + 1 :]), ranks - 1 - stage
            waits = max(0.0, behind - after * f[stage]) + max(0.0, behind - after * x[stage])
            sums.append(sum(y[:stage]) + microbatches * y[stage] + waits)
        assert found.makespan == pytest.approx(max(sums), rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 6, 8])
def test_controlled_memory_has_the_published_bubbles_and_peaks(ranks: int) -> None:
    """Bubbles in chunk times and peaks in chunks, f = b = w, for twice as many microbatches as ranks."""
    half = {2: (1, 4), 3: (5, 4), 4: (5, 6), 5: (11, 6), 6: (11, 8), 8: (17, 10)}
    least = {2: (3, 4), 3: (5, 4), 4: (11, 4), 5: (15, 6), 6: (17, 6), 8: (27, 8)}
    plain = {2: (4, 4), 3: (8, 6), 4: (15, 6), 5: (18, 8), 6: (22, 10), 8: (33, 12)}
    for name, table in (("v-half", half), ("v-min", least), ("v-1f1b", plain)):
        found = replay(name, stages=ranks, microbatches=2 * ranks, times={"F": 1, "B": 1, "W": 1})
        assert (found.makespan - 12 * ranks, max(found.peak_activations)) == table[ranks], name


PHYSICS = {
    "1f1b": "1f1b",
    "interleaved": "interleaved",
    "zb_h1": "zb-h1",
    "zb_v": "zbv",
    "dualpipe": "dualpipe",
    "dualpipev": "dualpipev",
    "combined_1f1b": "interleaved-ep-overlap",
}
"""Schedules of the calibrated cost model -> the same here."""


@pytest.mark.parametrize("place", range(len(schedules.SCHEDULES)), ids=schedules.SCHEDULES)
@given(random=st.randoms(use_true_random=False))
def test_the_cost_models_closed_forms_are_the_replay(place: int, random: Random) -> None:
    name = PHYSICS[schedules.SCHEDULES[place]]
    assert rule(schedules.SCHEDULES[place]) is rule(name)
    ranks = random.choice((2, 3, 4, 6, 8))
    chunks = random.randint(2, 4) if name in SEVERAL else 2 if name in ("zbv", "dualpipev") else 1
    microbatches = ranks * random.randint(2, 4)
    if bool(any(bool(np.any(each)) for each in schedules.refusals(place, ranks, microbatches, chunks).values())):
        with pytest.raises(ScheduleError):
            replay(name, stages=ranks, microbatches=microbatches, chunks=chunks, times={"F": 1, "B": 1, "W": 1})
        return
    f, b, w = (random.choice((0.75, 1.0, 1.5)) for _ in range(3))
    pair = random.choice((f + b + w, max(f, b + w))) if name in PAIRED else f + b + w
    if name == "dualpipe" and ranks < 4:
        pair = f + b + w
    times = {"F": f, "B": b, "W": w} | ({"FB": pair} if name in PAIRED else {})
    found = replay(name, stages=ranks, microbatches=microbatches, chunks=chunks, times=times)
    if b >= 0.65 * f and not (name == "dualpipe" and ranks < 4):
        stated = schedules.makespan(
            place, ranks, microbatches, chunks, forward=f, inputs=b, weights=w, pair=pair if name in PAIRED else None
        )
        assert found.makespan == pytest.approx(float(stated), rel=1e-12)
    held = schedules.activations_in_flight(place, ranks, np.arange(ranks, dtype=np.float64), microbatches, chunks)
    assert found.peak_activations == held.tolist()
    assert sum(found.messages_sent) == float(schedules.messages(place, ranks, microbatches, chunks))
    if f == b == w and place not in (schedules.DUALPIPE, schedules.DUALPIPE_V):
        sent = replay(
            name,
            stages=ranks,
            microbatches=microbatches,
            chunks=chunks,
            times=times,
            sends={"mode": "overlap", "c": 0.05},
        )
        if pair == f + b + w:
            hops = float(schedules.hops(place, ranks, microbatches, chunks))
            assert sent.makespan - found.makespan == pytest.approx(0.05 * hops, rel=1e-9)
