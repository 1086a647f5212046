"""Bad profiles and problems are told in a sentence; formats carry the same profile."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine.columns.stage_layouts import canonical, layout_of_word
from engine.planners.contract import PlanCancelledError, PlanError
from engine.planners.layerwise import plan
from engine.planners.layerwise.library_models import evaluated, plan_model, scenario_of
from engine.planners.layerwise.problem import LayerwiseProblem
from engine.planners.layerwise.profiles.checks import suspicions
from engine.planners.layerwise.profiles.examples import example, examples
from engine.planners.layerwise.profiles.reading import profile_text
from engine.planners.layerwise.profiles.states import states_of
from engine.planners.layerwise.profiles.tables import csv_text, json_text
from engine.planners.layerwise.strategy import graph_text, strategy, user_stages
from engine.planners.layerwise.sweep import BATCHES, batch_sweep, scalability
from tests.texts import any_text

LINE = "{} -- {} -- forward_compute_time={}, backward_compute_time=2, activation_size={}, parameter_size=8"


def chain(*lines: str) -> str:
    ids = [line.split(" -- ")[0] for line in lines]
    return "\n".join([*lines, *(f"\t{a} -- {b}" for a, b in itertools.pairwise(ids))])


def layer(name: str, time: object = 1, size: object = 4) -> str:
    return LINE.format(name, name, time, size)


BAD = {
    "cycle": (chain(layer("a"), layer("b")) + "\n\tb -- a", "cycle"),
    "missing size": ("a -- a -- forward_compute_time=1, backward_compute_time=2, parameter_size=8", "activation_size"),
    "not a number": (layer("a", "nan"), "finite"),
    "infinite": (layer("a", "inf"), "finite"),
    "negative": (layer("a", -1), "negative"),
    "word": (layer("a", "fast"), "no number"),
    "no edge": (layer("a") + "\n\ta b", "Line 2"),
    "edge to nowhere": (layer("a") + "\n\ta -- z", "z"),
    "twice": (layer("a") + "\n" + layer("a"), "twice"),
    "itself": (layer("a") + "\n\ta -- a", "feeds itself"),
    "no time": (
        "a -- a -- forward_compute_time=0, backward_compute_time=0, activation_size=1, parameter_size=1",
        "time",
    ),
    "empty": ("\n\n", "no layers"),
    "prose": ("hello\nworld", "Line 1"),
    "csv": ("layer,forward_s\na,1", "backward_s"),
    "json": ('{"layers": 3}', "layers"),
    "json field": ('{"layers": [{"layer": "a"}]}', "forward_s"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_profiles_are_told(name: str) -> None:
    text, word = BAD[name]
    with pytest.raises(PlanError, match=word):
        plan(text + "\n", profile_batch=1, global_batch=8, machines=[2])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"microbatch": 16}, "larger than the global batch"),
        ({"global_batch": 0}, "global batch"),
        ({"profile_batch": 0}, "profile batch"),
        ({"profile_batch": None}, "profile_batch"),
        ({"machines": []}, "Machines"),
        ({"machines": [8, 4]}, "rise"),
        ({"machines": [10**9]}, "at most"),
        ({"mode": "fast"}, "mode"),
        ({"profile": "/nowhere"}, "cannot be read"),
    ],
)
def test_bad_problems_are_told(changes: dict[str, object], word: str) -> None:
    asked: dict[str, object] = {
        "profile": chain(layer("a"), layer("b")),
        "profile_batch": 1,
        "global_batch": 8,
        "machines": [2],
    }
    with pytest.raises(PlanError, match=word):
        plan(**(asked | changes))  # type: ignore[arg-type]


@given(
    text=any_text(max_size=200)
    | st.lists(st.sampled_from([layer("a"), layer("b"), "\ta -- b", "\tb -- a", "a -- b", "{", "x,y", ""])).map(
        "\n".join
    )
)
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    with suppress(PlanError):
        profile_text(text)


def test_line_ends_marks_and_small_profiles_are_no_trouble() -> None:
    text = chain(layer("a"), layer("b", 2, "[1.0; 2; 3]"), layer("c"))
    plain = profile_text(text)
    assert profile_text("\ufeff" + text.replace("\n", "\r\n")) == plain
    assert plain.layers[1].activation == 6
    one = plan(layer("a") + "\n", profile_batch=1, global_batch=8, machines=[16])
    assert len(one.stages) == 1
    assert any("stages are more" in each.reason for each in one.candidates)
    for mode in ("released", "paper"):
        few = plan(text, profile_batch=1, global_batch=8, machines=[8, 16], mode=mode)
        assert few.stages[-1].stop == 3
        alone = plan(text, profile_batch=1, global_batch=8, machines=[1], mode=mode)
        assert alone.speedup == pytest.approx(1)
    tiny = plan(text, profile_batch=1, global_batch=1, machines=[8, 16])
    assert any(each.value is None and "less than one microbatch" in each.reason for each in tiny.candidates)


def test_formats_carry_the_same_profile(tmp_path: Path) -> None:
    profile = example("gnmt_32_simplified")
    for text in (csv_text(profile), json_text(profile)):
        again = profile_text(text)
        assert again.edges == profile.edges
        assert [x.id for x in again.layers] == [x.id for x in profile.layers]
        assert again.time == pytest.approx(profile.time)
    path = tmp_path / "profile.csv"
    path.write_text(csv_text(profile))
    found = plan(path, profile_batch=64, global_batch=1024, machines=[8, 16])
    assert found.speedup == pytest.approx(15.033829, abs=1e-6)


def test_too_many_frontiers_become_one_order_and_say_so() -> None:
    profile = example("gnmt_16")
    assert len(states_of(profile)) == 1495
    short = states_of(profile, most=100)
    assert short.linearised
    assert len(short) == len(profile.layers)
    assert short.time[-1] == pytest.approx(profile.time)


def test_units_and_batches_that_look_wrong_are_said() -> None:
    def told(text: str, batch: float) -> str:
        return " ".join(suspicions(profile_text(text), batch))

    assert "whole millions" in " ".join(suspicions(example("vgg19"), 32))
    assert "not 32" in " ".join(suspicions(example("resnet50"), 32))
    assert "another batch" in " ".join(suspicions(example("resnet50"), 100))
    assert suspicions(example("resnet50"), 128) == ()
    assert "milliseconds" in told(chain(layer("a", 1e9), layer("b")), 1)
    text = "a -- a -- forward_compute_time=9, backward_compute_time=0, activation_size=1, parameter_size=0\n"
    assert "backward pass" in told(text, 1)
    assert "no time" in told(text, 1)
    found = plan(example("vgg19"), global_batch=64, machines=[4])
    assert any("whole millions" in note for note in found.notes)


def test_sweeps_have_a_row_for_each_point() -> None:
    from engine.planners.layerwise.cluster import PRESETS

    problem = LayerwiseProblem(example("vgg19"), 32, 1024, PRESETS["A"])
    batches = batch_sweep(problem)
    assert list(batches["global_batch"]) == list(BATCHES)
    assert len(batches) == 65
    assert batches.set_index("global_batch")["best_hybrid"][2048] == pytest.approx(14.6954612)
    devices = scalability(problem, [2, 8, 16])
    assert (devices["straight"] <= devices["best_hybrid"]).all()
    with pytest.raises(PlanCancelledError):
        batch_sweep(problem, cancel=lambda: True)


def test_strategies_are_half_open_and_cover_all_layers() -> None:
    found = plan(example("bert_48"), global_batch=64, machines=[8, 16], mode="paper")
    document = json.loads(json.dumps(strategy(found)))
    ends = [(each["start"], each["end"]) for each in document["stages"]]
    assert [ends[0][0], ends[-1][1]] == [0, len(found.states)]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(ends))
    listed = [name for each in document["stages"] for name in each["layers"]]
    assert sorted(listed) == sorted(x.id for x in found.problem.profile.layers)
    assert user_stages(document, 16, len(found.states)) == [(s.start, s.stop, s.devices) for s in found.stages]
    assert graph_text(found).count("->") == len(found.problem.profile.edges)
    for wrong in ([], [{"start": 1, "end": 2, "devices": [0]}], [{"start": 0, "end": 999, "devices": [0]}], 3):
        with pytest.raises(PlanError):
            user_stages(wrong, 16, len(found.states))


def test_a_library_model_gets_stages_on_one_kind_of_processor_and_on_two() -> None:
    made = plan_model("llama-3-70B", "h100_80g_sxm", 64, global_batch=128, tensor_par=8)
    assert made.layout is not None
    assert sum(layout_of_word(made.layout).layers) == 80
    assert made.execution is not None
    assert made.execution["pipeline_par"] == len(made.plan.stages)
    # Its stages are those of the execution, which is evaluated and found again with them.
    assert made.execution["stage_layout"] == canonical(made.layout)
    row = evaluated(made, "llama-3-70B", "h100_80g_sxm").iloc[0]
    assert row["status"] == "ok"
    best = engine.best_of(scenario_of(made, "llama-3-70B", "h100_80g_sxm"))
    assert best["stage_layout"] == made.execution["stage_layout"]
    assert best["sample_rate"] >= row["sample_rate"]
    mixed = plan_model("llama-3-8B", [("h100_80g_sxm", 4), ("a100_80g_sxm", 4)], global_batch=32)
    blocks = {0: 0.0, 1: 0.0}
    for stage in mixed.plan.stages:
        for device in stage.devices:
            blocks[device // 4] += (stage.stop - stage.start) / len(stage.devices)
    assert blocks[0] > blocks[1]  # the faster half has more
    with pytest.raises(PlanError, match="groups of 2"):
        plan_model("llama-3-8B", "h100_80g_sxm", 9, global_batch=32, tensor_par=2)


def test_the_command_prints_tables_and_writes_strategies(
    shardscape: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, out, _ = shardscape("plan", "layers", "bert_48", "--batch", 64, "--mode", "released", "--json")
    assert code == 0
    assert json.loads(out)["figures"]["speedup"] == pytest.approx(14.0352552)
    path = tmp_path / "strategy.json"
    code, out, _ = shardscape("plan", "layers", "vgg19", "--batch", 512, "--preset", "B", "--strategy", path)
    assert (code, json.loads(path.read_text())["stages"][0]["start"]) == (0, 0)
    path, results = tmp_path / "execution.json", tmp_path / "results.csv"
    system = ("--system", "h100_80g_sxm:64", "--tensor-par", 8, "--batch", 128)
    assert shardscape("plan", "layers", "llama-3-70B", *system, "--execution", path)[0] == 0
    assert shardscape("evaluate", "llama-3-70B", "h100_80g_sxm", path, "--out", results)[0] == 0
    assert pd.read_csv(results)["status"].tolist() == ["ok"]
    code, _, told = shardscape("plan", "layers", "vgg19", "--batch", 64, "--execution", path)
    assert (code, told.count("\n")) == (2, 1)
    code, out, _ = shardscape("plan", "layers", "vgg19", "--batch", 64, "--sweep", "--csv", "--mode", "released")
    assert len(out.splitlines()) == 66
    code, _, told = shardscape("plan", "layers", "vgg19", "--batch", 64, "--machines", "8,x")
    assert (code, told.count("\n")) == (2, 1)
    assert len(examples()) == 12
