"""Which networks of a system the groups of an execution need, and how their ranks are placed on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hardware
from engine.calibrated.networks import networks_used
from hardware import System


def system_with(*networks: tuple[int, float]) -> System:
    """An H100 with networks of these sizes and rates [GB/s], innermost first."""
    document: dict[str, Any] = hardware.to_document(hardware.load("h100_80g_sxm"))
    plain = document["networks"][0]
    document["networks"] = [
        {**plain, "size": size, "bandwidth_gb_per_s": rate, "must_be_filled": False} for size, rate in networks
    ]
    document |= {"assumptions": [], "unverified_fields": [], "name": "machine"}
    return hardware.load_document(document)


FOUR = system_with((8, 450.0), (64, 100.0), (1024, 50.0), (65536, 25.0))
ONE_OF_EACH = {"tensor_par": 1, "context_par": 1, "data_par": 1, "pipeline_par": 1, "expert_par": 1,
               "expert_tensor_par": 1}  # fmt: skip


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ({}, {"tensor": 0, "context": 0, "expert": 0, "data": 0, "pipeline": 0}),
        ({"tensor_par": 8}, {"tensor": 0}),
        ({"tensor_par": 16}, {"tensor": 1, "data": 0}),
        ({"tensor_par": 8, "context_par": 8}, {"tensor": 0, "context": 1, "data": 1}),
        ({"tensor_par": 8, "data_par": 16}, {"context": 0, "data": 2, "pipeline": 0}),
        ({"data_par": 8, "pipeline_par": 2}, {"data": 0, "pipeline": 1}),
        ({"tensor_par": 8, "data_par": 128, "pipeline_par": 8}, {"data": 2, "pipeline": 3}),
        ({"data_par": 64, "expert_par": 8, "expert_tensor_par": 1}, {"expert": 0, "data": 1}),
        ({"tensor_par": 8, "data_par": 64, "expert_par": 8, "expert_tensor_par": 8}, {"expert": 1}),
        ({"data_par": 65536, "pipeline_par": 2}, {"data": 3, "pipeline": 4}),
    ],
)
def test_a_group_needs_the_networks_up_to_the_first_that_it_fits_in(
    degrees: dict[str, int], expected: dict[str, int]
) -> None:
    found = networks_used(FOUR, ONE_OF_EACH | degrees)
    assert {name: int(found[name]) for name in expected} == expected


def test_many_executions_at_once() -> None:
    found = networks_used(FOUR, {name: np.array([value, value]) for name, value in ONE_OF_EACH.items()} | {
        "tensor_par": np.array([1, 16]), "pipeline_par": np.array([2, 64]),
    })  # fmt: skip
    assert found["tensor"].tolist() == [0, 1]
    assert found["pipeline"].tolist() == [0, 2]
