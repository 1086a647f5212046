"""Models of the library under changing resources: curves of proven optima, what moves, phases, lost nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
import engine.reproductions
from engine.planners.contract import PlanError
from engine.planners.elastic import after_failure, model_curve, model_job, model_phases, split
from engine.planners.elastic.library_models import model_point, movement
from hardware import System, load

ASKED: dict[str, Any] = {"model": "llama-3-8B", "system": "h100_80g_sxm", "batch": 64}
H100 = load("h100_80g_sxm")
FINE = 12
"""Cells into which each axis of a model is cut; every degree of these tests divides it."""


@dataclass
class Run:
    """An execution on GPUs, as much of it as movement looks at: twelve cells of each axis are 1,728 bytes."""

    tensor_par: int
    pipeline_par: int
    data_par: int
    zero_stage: int
    system: System = field(default_factory=lambda: H100)

    @property
    def gpus(self) -> int:
        return self.tensor_par * self.pipeline_par * self.data_par

    @property
    def execution(self) -> Mapping[str, Any]:
        share = FINE**3 / (self.tensor_par * self.pipeline_par)
        return {
            "tensor_par": self.tensor_par,
            "pipeline_par": self.pipeline_par,
            "data_par": self.data_par,
            "zero_stage": self.zero_stage,
            "weight_space": share / (self.data_par if self.zero_stage >= 3 else 1),
            "optimizer_space": 6 * share / (self.data_par if self.zero_stage >= 1 else 1),
        }

    def cells(self, rank: int, stage: int) -> set[tuple[int, int, int]]:
        """The cells (layer, width, shard) that a rank holds, one by one."""
        tensor, replica = rank % self.tensor_par, rank // self.tensor_par % self.data_par
        pipeline = rank // (self.tensor_par * self.data_par)
        shards = self.data_par if self.zero_stage >= stage else 1
        return {
            (layer, width, shard)
            for layer, width, shard in product(range(FINE), repeat=3)
            if layer * self.pipeline_par // FINE == pipeline
            and width * self.tensor_par // FINE == tensor
            and (shards == 1 or shard * shards // FINE == replica)
        }


degrees = st.sampled_from([1, 2, 3])
runs = st.builds(Run, degrees, degrees, st.sampled_from([1, 2, 4]), st.integers(0, 3))


@settings(max_examples=12, deadline=None)
@given(runs, runs, st.data())
def test_movement_equals_cells_counted_one_by_one(before: Run, after: Run, data: st.DataObject) -> None:
    old = data.draw(st.permutations([*range(before.gpus), *([-1] * after.gpus)]))[: after.gpus]
    found = movement(before, after, old)
    received = [0.0] * after.gpus
    lost = 0.0
    for stage, size in ((3, 1.0), (1, 6.0)):
        for rank, previous in enumerate(old):
            has = before.cells(previous, stage) if previous >= 0 else set()
            received[rank] += size * len(after.cells(rank, stage) - has)
        alive = set().union(*(before.cells(rank, stage) for rank in old if rank >= 0)) if max(old) >= 0 else set()
        lost += size * (FINE**3 - len(alive))
    assert found.received.tolist() == pytest.approx(received, abs=1e-6)
    assert found.lost == pytest.approx(lost, abs=1e-6)
    network = H100.networks[0 if after.gpus <= 8 else 1]
    assert found.seconds == pytest.approx(max(received) / (network.bandwidth_gb_per_s * 1e9 * network.efficiency))


def test_nothing_moves_where_nothing_changes() -> None:
    run = Run(2, 3, 4, 1)
    assert movement(run, run).total == 0
    assert movement(run, run).lost == 0
    # Twice the replicas: new GPUs get everything, of the old ones only the first has all of its new shard.
    more = movement(Run(1, 1, 2, 1), Run(1, 1, 4, 1))
    whole, optimizer = FINE**3, 6 * FINE**3
    assert more.received.tolist() == pytest.approx([0, optimizer / 4, whole + optimizer / 4, whole + optimizer / 4])


def test_a_curve_has_the_proven_optimum_at_every_size() -> None:
    table = model_curve(**ASKED, gpus=[1, 8, 48, 56, 60, 64]).set_index("gpus")
    for size in (8, 48):
        best = engine.best(
            "llama-3-8B",
            "h100_80g_sxm",
            num_procs=size,
            max_batch_size=64,
            datatype="bfloat16",
            limits={"batch_size": [64]},
        )
        assert table.loc[size, "raw_best"] == best["sample_rate"]
        assert table.loc[size, "iteration_s"] == pytest.approx(64 / table.loc[size, "raw_best"])
    # 60 GPUs do less than 56: 64 samples divide worse among them.
    assert table.loc[60, "raw_best"] < table.loc[56, "raw_best"] == table.loc[60, "stored_best"]
    assert table.loc[60, "stored_gpus"] == 56
    assert (table["moves_s"].iloc[1:] > 0).all()
    assert math.isnan(table["moves_gib"].iloc[0])


def test_placements_and_bandwidth_count() -> None:
    packed = model_point(**ASKED, placement="88")
    spread = model_point(**ASKED, placement=[2] * 8)
    slow = model_point(**ASKED, placement="88", bandwidth=1)
    assert packed.gpus == spread.gpus == 16
    assert packed.throughput > spread.throughput
    assert packed.throughput > slow.throughput
    assert spread.execution["tensor_par"] <= 2
    with pytest.raises(PlanError, match="larger than the 8"):
        model_point(**ASKED, placement="9")


def test_jobs_are_split_on_their_own_curves() -> None:
    jobs = [
        model_job(**ASKED, gpus=10),
        model_job("llama-2-13B", "h100_80g_sxm", batch=32, gpus=10, guarantee=4.0),
    ]
    found = split(jobs, 10)
    rates = [[0.0, *(0.0 if math.isnan(rate) else rate for rate in job.rates)] for job in jobs]
    kept = [max(rates[1][: 11 - n]) >= 4.0 for n in range(11)]
    best = max(
        max(rates[0][: n + 1]) / rates[0][10] + max(rates[1][: 11 - n]) / rates[1][10] for n in range(11) if kept[n]
    )
    assert found.totals()["exact"] == pytest.approx(best)
    assert found.totals()["exact"] > 1.1 * found.totals()[["equal", "greedy"]].max()
    assert found.exact["kept"].all()


def test_lost_nodes_are_a_phase_like_any_other() -> None:
    table = model_phases("llama-3-8B", "h100_80g_sxm", [(600, "8888"), (600, "888"), (60, 0), (600, "8888")], batch=64)
    assert table["throughput"].iloc[2] == 0
    assert table["plan"].iloc[0] == table["plan"].iloc[3]
    assert table["paused_s"].tolist()[0] == 0
    assert table["paused_s"].iloc[1] > 260
    assert table["samples"].iloc[1] == pytest.approx(table["throughput"].iloc[1] * (600 - table["paused_s"].iloc[1]))


def test_what_to_do_when_a_node_is_lost() -> None:
    even = {"stage_layout": ["even"]}
    table = after_failure(**ASKED, placement="8" * 8, spares=1, limits=even).set_index("way")
    assert list(table.index) == ["spares", "shrink", "wait"]
    # With even stages the best that is left is on six of seven nodes.
    assert table.loc["shrink", "placement"] == "888888"
    assert table.loc["spares", "plan"] == table.loc["wait", "plan"]
    assert table.loc["wait", "samples"] == 0
    # Optimizer states are shared out among all replicas, so those of eight GPUs are nowhere else.
    assert table.loc["spares", "checkpoint_gib"] > 0
    assert list(after_failure(**ASKED, placement="88", lost=2)["way"]) == ["wait"]
    for wrong in ({"lost": 3}, {"spares": -1}, {"repair_s": 0}, {"batch": 0}, {"placement": "x"}):
        with pytest.raises(PlanError):
            after_failure(**{**ASKED, "placement": "88", **wrong})


def test_the_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from engine.cli.main import app

    words = ["plan", "elastic", "model", "llama-3-8B", "--system", "h100_80g_sxm", "--batch", "64"]
    result = CliRunner().invoke(app, [*words, "--gpus", "1,2,4", "--csv"])
    assert (result.exit_code, len(result.output.splitlines())) == (0, 4)
    file = tmp_path / "phases.csv"
    file.write_text("duration_s,placement\n60,88\n60,8\n")
    assert CliRunner().invoke(app, [*words, "--phases", str(file), "--json"]).exit_code == 0
    result = CliRunner().invoke(app, [*words, "--lose", "1"])
    assert (result.exit_code, "give --placement" in result.output) == (2, True)
