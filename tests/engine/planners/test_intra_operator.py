"""ParallelBlocks and operation counts against the figures that CFP published (its README)."""

import pandas as pd
import pytest

from engine.planners.contract import PlanError
from engine.planners.intra_operator import blocks
from engine.reproductions.cfp.operations import tflop_count
from engine.reproductions.cfp.volumes import vector_volumes
from models import ModelFileError


def test_the_spaces_of_the_three_families_are_the_published_ones() -> None:
    assert blocks("gpt F").spaces == {"dense": [3, 3, 3, 3]}
    assert blocks("moe E").spaces == {"experts": [3, 3, 3, 4], "dense": [3, 3, 3, 3]}
    assert [each.contractions for each in blocks("llama")] == [
        ("q", "k", "v", "qk", "av"),
        ("out",),
        ("gate_proj", "up_proj"),
        ("down_proj",),
    ]


def test_plan_tables_follow_from_labels() -> None:
    attention, out, gate, experts = blocks("moe E")[:4]
    assert [each.name for each in out.strategies] == [
        "SS = SR x RS @ {0,1}",
        "SS = SR x RS @ {1,0}",
        "RS = RS x SS @ {1,0} (allreduce @ 1)",
    ]
    assert [member.labels for member in attention.members[1:]] == [("a", "b", "a")] * 2  # heads, batch, heads
    assert gate.plans["dispatch"] == gate.plans["combine"] == (3, 3, 3)
    assert experts.plans["down"] == (2, 0, 1, 3)


@pytest.mark.parametrize(
    ("model", "batch", "layers", "tflop", "seconds", "rate"),
    [
        ("gpt F", 24, 2, 59.373627899904, 0.29200369, 203.33177455599028),
        ("gpt F", 32, 2, 79.164837199872, None, None),
        ("moe E", 64, 4, 52.9891590144, 0.44787622, 118.31206101529366),
        ("gpt F", 24, 2, 59.373627899904, 0.37685599, 157.54991020463305),
    ],
)
def test_operations_and_throughput_are_the_published_ones(
    model: str, batch: int, layers: int, tflop: float, seconds: float | None, rate: float | None
) -> None:
    counted = tflop_count(model, batch=batch, layers=layers)
    assert counted == pytest.approx(tflop, rel=1e-14)
    if seconds is not None:
        assert counted / seconds == pytest.approx(rate, rel=1e-7)


@pytest.mark.parametrize(("model", "batch"), [("gpt Z", 16), ("", 16), ("moe E", 3), ("gpt F", 0)])
def test_what_is_no_model_is_told(model: str, batch: int) -> None:
    with pytest.raises((PlanError, ModelFileError)):
        blocks(model, batch=batch)


def _volumes(batch: int, layers: int) -> "pd.Series[float]":
    found = vector_volumes("gpt F", batch=batch, layers=layers, devices=4)
    return found.set_index("vector")["volume"]


def test_volumes_are_those_of_the_specified_state_machine() -> None:
    found = _volumes(16, 2)
    four_digits = {(0, 0, 0, 0): 1.047e10, (0, 0, 0, 1): 7.853e9, (0, 0, 0, 2): 5.034e9, (0, 0, 1, 0): 1.027e10}
    for vector, expected in four_digits.items():
        assert float(f"{found[vector]:.3e}") == expected
    # CFP measured 16.3084, 12.3822, 5.23488 and 16.0068 GB: only the third is near, as the specification says.


def test_megatron_has_the_least_volume_of_all_vectors_that_shard_every_weight() -> None:
    found = _volumes(4, 4)
    sharded = found[[1 not in vector for vector in found.index]].sort_values()
    assert len(sharded) == 16
    assert sharded.index[0] == (0, 2, 0, 2)
    assert sharded.iloc[1] > sharded.iloc[0]


def test_data_parallelism_takes_over_at_three_hidden_sizes_of_tokens() -> None:
    for batch, cheaper in ((8, (0, 2, 0, 2)), (16, (1, 1, 1, 1))):
        steady = _volumes(batch, 3) - _volumes(batch, 2)  # one more layer
        assert steady[[(0, 2, 0, 2), (1, 1, 1, 1)]].idxmin() == cheaper
    equal = _volumes(12, 3) - _volumes(12, 2)  # 12 * 1024 tokens = 3 * 4096
    assert equal[(0, 2, 0, 2)] == pytest.approx(equal[(1, 1, 1, 1)], rel=1e-12)
