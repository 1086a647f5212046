"""Resharding against counting elements, and the segment map of CFP's log."""

from itertools import permutations, product

import numpy as np
import pytest

import engine.reproductions  # noqa: F401 - adds the models of Alpa's suites
from engine.planners.intra_operator import segment_map
from engine.planners.intra_operator.costs.factors import LAST, REPLICATED, TOKENS, LayerAccount


def _held(
    state: tuple[int, ...], shape: tuple[int, ...], order: tuple[int, ...], place: tuple[int, ...], edge: int
) -> set[int]:
    """The elements of a matrix that a device holds, axes cutting in an order."""
    ranges = {TOKENS: range(edge), LAST: range(edge)}
    for axis in order:
        if (kind := state[axis]) != REPLICATED:
            part = len(ranges[kind]) // shape[axis]
            ranges[kind] = ranges[kind][place[axis] * part : (place[axis] + 1) * part]
    return {row * edge + column for row in ranges[TOKENS] for column in ranges[LAST]}


def _lacking(source: tuple[int, ...], target: tuple[int, ...], shape: tuple[int, ...], edge: int) -> float:
    """Elements that a device has to get, where both axes cut one dimension in the order that suits."""
    places = list(product(*map(range, shape)))
    orders = list(permutations(range(len(shape))))
    return min(
        sum(len(_held(target, shape, b, each, edge) - _held(source, shape, a, each, edge)) for each in places)
        for a, b in product(orders, repeat=2)
    ) / len(places)


@pytest.mark.parametrize("shape", [(4,), (2, 4), (3, 2)])
def test_resharding_moves_the_elements_that_devices_lack(shape: tuple[int, ...]) -> None:
    edge = 24
    for source, target in product(product(range(3), repeat=len(shape)), repeat=2):
        account = LayerAccount(shape)
        account.convert((0,), np.array([source]), np.array([target]), float(edge**2))
        volumes = account.factors[0].volumes
        assert volumes is not None
        counted = volumes[0].reshape(len(shape), 4)
        lacking = _lacking(source, target, shape, edge)
        pairs = list(zip(source, target, strict=True))
        if not counted.any():
            assert lacking == 0
        elif not counted[:, 2].any():
            sliced = any(a == REPLICATED != b for a, b in pairs)
            # A slice beside a gather moves what was split elsewhere: never less than what is lacking.
            assert counted.sum() >= lacking - 1e-9 if sliced else counted.sum() == pytest.approx(lacking)
        elif len(shape) == 1:  # an all-to-all counts n / 2 times what it moves
            assert counted.sum() == pytest.approx(lacking * shape[0] / 2)


def test_adding_up_over_both_axes_moves_what_one_axis_of_all_devices_would() -> None:
    size, shape = 960.0, (3, 4)
    account = LayerAccount(shape)
    both = np.ones((1, 2), bool)
    account.reduce((0,), both, ~both, size)
    account.reduce((0,), both, ~both, size, scattered=True)
    volumes = [each.volumes[0].sum() for each in account.factors if each.volumes is not None]
    assert volumes == pytest.approx([2 * 11 / 12 * size, 11 / 12 * size])


def test_the_segment_map_is_that_of_the_published_log() -> None:
    found = segment_map("moe E", batch=64, layers=4)
    assert list(zip(found["printed"], found["printed_as"], strict=True)) == [
        ((0, 8), (0, 8)),
        ((8, 14), (8, 14)),
        ((14, 22), (0, 8)),
        ((22, 28), (8, 14)),
    ]
    assert list(zip(found["start"], found["stop"], strict=True)) == [(0, 9), (9, 15), (15, 24), (24, 30)]
    different = found[~found["repeats"]]
    assert list(different["space"]) == [(3, 3, 3, 4), (3, 3, 3, 3)]
    assert (different["vectors"].sum(), found["vectors"].prod()) == (108 + 81, 108**2 * 81**2)
    deep = segment_map("deepseek-v2-lite", batch=8)
    assert list(deep["template"]) == [0, *[1] * 26]
