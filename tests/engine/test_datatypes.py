"""Every datatype in every door: taken by system, link, table, store and JSON alike, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import engine
import hardware
from dashboard.link import scenario_parameters
from dashboard.queries.parallelism_grids import machine_of
from engine.columns import choice_label
from engine.questions import answer
from engine.store import Store
from engine.whatif import changed, parameters
from models import datatypes

NAMES = [*datatypes.names(), "posit16", "NVFP4"]
SYSTEMS = ("gb300_279g_nvl72", "h100_80g_sxm", "a100_80g_sxm", "tpu_v6e_32g", "mi355x_288g")
SIZES: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8}
LIMITS: dict[str, Any] = {"tensor_par": [8], "pipeline_par": [1], "activation_recompute": "none"}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_datatype_means_the_same_in_every_door_or_is_refused(system: str, name: str, tmp_path: Path) -> None:
    model, machine = "llama-3-8B", hardware.load(system)
    accepted = engine.COST_MODELS["calibrated"].datatypes
    asked: dict[str, Any] = {"model": model, "system": system, "datatype": name, "limits": LIMITS, **SIZES}
    plain = engine.Scenario.of(**asked | {"datatype": "bfloat16"})
    link = scenario_parameters.parameters_of(plain) | {"type": name}
    if name not in accepted or not machine.has_rate(name):
        there = accepted if name not in accepted else machine.offered_datatypes
        for ask in (lambda: engine.Scenario.of(**asked).space, lambda: engine.best(**asked)):
            with pytest.raises(engine.SpaceError) as refused:
                ask()
            assert name in str(refused.value)
            assert ", ".join(there) in str(refused.value)
        with pytest.raises(engine.SpaceError, match=name):
            answer("best", {"scenario": asked})
        read = scenario_parameters.read_scenario(link)
        assert any(name in problem for problem in read.problems)
        return
    scenario = engine.Scenario.of(**asked)
    read = scenario_parameters.read_scenario(link)
    assert (read.scenario, read.problems) == (scenario, ())
    assert engine.Scenario.from_document(scenario.to_document()) == scenario
    assert choice_label("datatype", name) == datatypes.named(name).label
    with Store(tmp_path / "results.duckdb") as store:
        best = engine.explore_scenario(scenario, store=store).best
        kept = engine.explore_scenario(scenario, store=store).best
    assert best is not None
    assert kept is not None
    found = engine.best(**asked)
    row = engine.evaluate(model, system, scenario.space.table([best["id"]])).iloc[0]
    times = [each["total_time"] for each in (best, kept, found, row)]
    assert times == pytest.approx([times[0]] * 4, rel=1e-12)
    assert {each["datatype"] for each in (best, kept, found, row)} == {name}
    what = next(each.name for each in parameters(scenario) if each.name in ("compute", "matrix"))
    assert machine_of(scenario)["datatype_bytes"] in (1, 2)
    changes = {what: 2 * machine.peak_tflops(name)}
    altered = answer("what_if", {"scenario": asked, "changes": changes})
    assert name in str(altered)
    faster = changed(scenario, changes)
    assert faster.system.peak_tflops(name) == pytest.approx(changes[what])
    # A rate that is bound to another datatype's does not rise with its own peak alone.
    bound = what == "matrix" and datatypes.named(name).sustained is not None
    assert bound == (engine.best_of(faster)["total_time"] == found["total_time"])
    assert bound or engine.best_of(faster)["total_time"] < found["total_time"]
    assert len(engine.operations(model, system, dict(row))) > 0


def test_scales_and_rates_make_formats_differ() -> None:
    def seconds(system: str, name: str) -> float:
        return float(engine.best("llama-3-8B", system, datatype=name, limits=LIMITS, **SIZES)["total_time"])

    formats = ("bfloat16", "float8", "mxfp8", "float4", "mxfp4", "nvfp4")
    found = {name: seconds("gb300_279g_nvl72", name) for name in formats}
    assert len(set(found.values())) == len(formats)
    assert found["float8"] < found["mxfp8"] < found["bfloat16"]
    assert found["mxfp4"] < found["nvfp4"] < found["float8"]
    # Without a peak of its own NVFP4 runs at that of FP4, and no faster than twice FP8 either way.
    document = hardware.to_document(hardware.load("gb300_279g_nvl72"))
    for unit in ("matrix", "vector"):
        document[unit].pop("nvfp4")
    older = hardware.load_document(document)
    again = engine.best("llama-3-8B", older, datatype="nvfp4", limits=LIMITS, **SIZES)
    assert again["total_time"] == found["nvfp4"]
