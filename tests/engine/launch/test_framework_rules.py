"""Spaces leave out what a framework's writer refuses or writes otherwise, and nothing else."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest

import models
from engine import LimitError, Scenario, launch
from engine.columns import ALL_FIELDS, by_name, called
from engine.executions.frameworks.contract import (
    LaunchSubject,
    flags_of,
)
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES, FRAMEWORK_WORDS
from engine.exploration.proven_optimum import best_of
from engine.exploration.run import explore_scenario
from engine.questions.scenario_documents import ScenarioDocument
from models import datatypes

WIDE: dict[str, Any] = {
    **{
        name: list(by_name(name).choices)
        for name in (
            "schedule",
            "attention_kernel",
            "launch",
            "gradient_datatype",
            "optimizer_datatype",
            "token_dispatcher",
            "dispatch_datatype",
            "context_par_comm",
        )
    },
    **{name: [False, True] for name in ("fp8_param_gather", "expert_overlap", "pipeline_overlap")},
    "selective_recompute": [
        *by_name("selective_recompute").choices,
        "moe_act+layernorm",
        "mla_up_proj",
        "core_attn+moe",
    ],
    "recompute_blocks": [0, 1, 2],
    "context_par": [1, 2, 4],
    "expert_imbalance": [100, 150],
    "stage_layout": ["even", "balanced", "both_counted", "loss_counted", "embedding_counted", "first_7_last_6"],
}
"""Limits that widen a space to all words of fields."""
SYSTEMS = {
    "h100_80g_sxm": ("bfloat16", "float8", "float16"),
    "a100_80g_sxm": ("bfloat16", "float16"),
    "b200_180g_sxm": ("bfloat16", "mxfp8", "nvfp4"),
}
PLAIN = ("llama-3-70B", "mixtral-8x7B", "deepseek-v3", "gpt3-175B", "gemma-2B", "qwen3-30B-A3B", "llama-3.2-1B")


class World(NamedTuple):
    """Executions drawn from a space."""

    scenario: Scenario
    rows: list[dict[str, Any]]


def draw_worlds(names: tuple[str, ...], seed: int, number: int, rows: int) -> list[World]:
    """Return executions of random spaces, of which half are of a framework where `names` are plain models."""
    rng, found = random.Random(seed), []
    while len(found) < number:
        model = models.load(rng.choice(names))
        if rng.random() < 0.3:
            model = models.edited(model, {"seq_size": 16384})
        system = rng.choice(sorted(SYSTEMS))
        limits = {name: WIDE[name] for name in rng.sample(sorted(WIDE), rng.choice((0, 0, 1, 1, 2, 3)))}
        limits |= {"pipeline_par": {"min": 2}} if rng.random() < 0.4 else {}
        asked = {
            "num_procs": rng.choice((8, 16, 64, 96, 512)),
            "max_batch_size": rng.choice((64, 96, 480, 512)),
            "datatype": rng.choice(SYSTEMS[system]),
            "framework": rng.choice((ANY, *FRAMEWORK_WORDS)) if rng.random() < 0.5 else ANY,
        }
        try:
            scenario = Scenario.of(model, system, limits=limits, cost_model="calibrated", **asked)
            total = scenario.space.total
        except LimitError:  # a stage layout that this model does not have
            continue
        if total:
            ids = sorted(rng.randrange(total) for _ in range(rows))
            found.append(World(scenario, scenario.space.table(ids).to_dict("records")))
    return found


def what_writer_says(row: dict[str, Any], scenario: Scenario, framework: str) -> str:
    """Return why the writer refuses an execution, or what of it the writer replaces; empty where it writes it as it is.

    Fields that no configuration decides count as written.
    """
    try:
        written = launch.write(row, scenario.model, framework=framework)
    except launch.LaunchError as problem:
        return str(problem)
    decided = [each.name for each in ALL_FIELDS if each.name not in FRAMEWORK_RULES[framework].elsewhere]
    beginnings = tuple(word for name in decided for word in (called(name), name))
    return next((each for each in written.not_expressible if each.startswith(beginnings)), "")


@pytest.fixture(scope="module")
def plain_worlds() -> list[World]:
    return draw_worlds(PLAIN, 7, 50, 12)


@pytest.fixture(scope="module")
def pattern_worlds() -> list[World]:
    patterns = tuple(name for name in models.names() if models.load(name).layers is not None)
    return draw_worlds(patterns, 8, 30, 5)


@pytest.mark.parametrize("framework", FRAMEWORK_RULES)
def test_writers_refuse_exactly_what_the_rules_leave_out(framework: str, plain_worlds: list[World]) -> None:
    runs = 0
    for scenario, rows in plain_worlds:
        assert not launch.find_model_refusal(scenario.model, framework, "bfloat16")
        for row in rows:
            obstacles, said = (
                launch.list_obstacles(scenario, row, framework),
                what_writer_says(row, scenario, framework),
            )
            assert bool(obstacles) == bool(said), (scenario.model.name, obstacles, said, row)
            assert not (scenario.framework == framework and obstacles), (obstacles, row)
            runs += not obstacles
    assert runs > 20


@pytest.mark.parametrize("framework", FRAMEWORK_RULES)
def test_models_of_unlike_layers_are_refused_as_a_whole_or_by_rules(
    framework: str, pattern_worlds: list[World]
) -> None:
    for scenario, rows in pattern_worlds:
        whole = launch.find_model_refusal(scenario.model, framework, scenario.datatype)
        for row in rows:
            obstacles, said = (
                launch.list_obstacles(scenario, row, framework),
                what_writer_says(row, scenario, framework),
            )
            assert bool(whole or obstacles) == bool(said), (scenario.model.name, whole, obstacles, said, row)


VARIED = tuple(
    column.name
    for column in ALL_FIELDS
    if column.name not in ("stage_layout", "datatype", "attention_type")
    and (column.choices or column.dtype == "bool" or column.name in ("zero_stage", "recompute_blocks"))
)
"""Fields of methods, of which neighbours of an execution change one."""


def change_one_field(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the executions that differ from one in the value of one field, as far as a space may have them."""
    found = []
    for name in VARIED:
        if name == "schedule" and row["pipeline_par"] == 1:
            continue
        further = {"activation_recompute": "full"} if name == "recompute_blocks" else {}
        values = WIDE.get(name) or by_name(name).choices or by_name(name).numbers or (False, True)
        found += [{**row, **further, name: value} for value in values if value != row[name]]
    return found


_HIDDEN_RARELY = {
    "hidden exchange of tokens in FP32",
    "hidden exchange of tokens of unlike layers",
    "hidden exchange of tokens with several prediction layers",
}
BROKEN_BY_NO_NEIGHBOUR: dict[str, set[str]] = {
    "megatron": {*_HIDDEN_RARELY, "hidden exchange of tokens in a pipeline without chunks"},
    "megatron-bridge": {
        *_HIDDEN_RARELY,
        "hidden exchange of tokens in a pipeline without chunks",
        "numbers of recomputed blocks of unlike layers",
        "offloaded activations of unlike layers",
        "recompute of modules that the model lacks",
    },
    "torchtitan": {
        "context parallelism without ZeRO",
        "expert ranks beyond the shards without ZeRO",
        "sequence parallelism of undivided tokens",
    },
    "deepspeed": {"16-bit optimizer state without BF16"},
    "maxtext": set(),
}
"""Rules of modes that need another model or other degrees than the neighbours have."""


@pytest.mark.parametrize("framework", FRAMEWORK_RULES)
def test_every_rule_of_modes_is_needed(framework: str) -> None:
    of_modes, alone = set[str](), set[str]()
    rng = random.Random(5)
    for model in (*PLAIN, "bamba-9B"):
        whole = launch.find_model_refusal(models.load(model), framework, "bfloat16")
        for procs, pipelines in () if whole else ((8, 1), (32, {"min": 2})):
            limits = {"pipeline_par": pipelines, "context_par": [1, 2], "context_par_comm": ["p2p", "a2a"]}
            asked: dict[str, Any] = {"num_procs": procs, "max_batch_size": 64, "datatype": "bfloat16"}
            scenario = Scenario.of(model, "h100_80g_sxm", **asked, framework=framework, limits=limits)
            if not scenario.space.total:
                continue
            number = rng.randrange(scenario.space.total)
            fields = scenario.space.fields([number])
            subject = LaunchSubject(scenario.model, "bfloat16", lambda *_: ())
            of_modes.update(FRAMEWORK_RULES[framework].modes(fields, flags_of(fields, subject), subject))
            for neighbour in change_one_field(scenario.space.row(number)):
                try:
                    obstacles = launch.list_obstacles(scenario, neighbour, framework)
                except launch.LaunchError:  # fields that contradict each other
                    continue
                said = what_writer_says(neighbour, scenario, framework)
                assert bool(obstacles) == bool(said), (model, obstacles, said, neighbour)
                alone |= set(obstacles) if len(obstacles) == 1 else set()
    assert of_modes - alone <= BROKEN_BY_NO_NEIGHBOUR[framework]


@pytest.fixture(scope="module")
def everything() -> Any:
    """Every execution of a small scenario, by framework."""
    small = Scenario.of(
        "qwen3-30B-A3B",
        "h200_141g_sxm",
        num_procs=8,
        max_batch_size=16,
        datatype="bfloat16",
        limits={"activations_offload": False, "optimizer_offload": False, "tensor_par": [1, 2]},
    )
    return small, explore_scenario(small, workers=1)


@pytest.mark.parametrize("framework", FRAMEWORK_RULES)
def test_a_framework_keeps_the_executions_and_figures_that_it_runs(framework: str, everything: Any) -> None:
    free, found = everything
    own = launch.with_framework(free, framework)
    fields = [column.name for column in ALL_FIELDS]
    whole = free.space.table(np.arange(free.space.total))
    rng = np.random.default_rng(3)
    kept = own.space.table(np.arange(own.space.total))
    merged = whole.reset_index(names="id").merge(kept.reset_index(names="own"), on=fields, how="left", validate="1:1")
    is_kept = merged["own"].notna()
    assert is_kept.sum() == own.space.total
    for row in rng.choice(len(merged), 60, replace=False).tolist():
        execution = {name: merged[name].iloc[row] for name in fields}
        assert bool(launch.list_obstacles(free, execution, framework)) == (not is_kept.iloc[row])
    rows = found.top(found.feasible, "sample_rate")
    runs = rows[rows["id"].isin(set(merged.loc[is_kept, "id"]))]
    best = best_of(own)
    assert len(runs) == explore_scenario(own, workers=1).feasible
    assert float(best["sample_rate"]) == float(runs["sample_rate"].max())
    cost = launch.find_framework_cost(free, framework)
    assert cost.slowdown == 1.0 - float(runs["sample_rate"].max()) / float(rows["sample_rate"].max())
    assert (cost.slowdown == 0.0) or cost.obstacles
    assert launch.write(dict(best), own.model, framework=framework).flags


def test_any_framework_changes_nothing() -> None:
    asked: dict[str, Any] = {"num_procs": 16, "max_batch_size": 32, "datatype": "bfloat16", "limits": {"tensor_par": 2}}
    plain, named = (Scenario.of("llama-3-8B", "h100_80g_sxm", **asked, **more) for more in ({}, {"framework": ANY}))
    assert plain == named
    assert plain.key == named.key == launch.with_framework(plain, ANY).key
    assert "framework" not in plain.to_document()
    keys = {launch.with_framework(plain, each).key for each in FRAMEWORK_WORDS}
    assert len(keys) == len(FRAMEWORK_WORDS)
    for each in FRAMEWORK_RULES:
        chosen = launch.with_framework(plain, each)
        document = json.loads(json.dumps(chosen.to_document()))
        assert (document["framework"], document["limits"]) == (each, {"tensor_par": [2]})
        assert (
            Scenario.from_document(document)
            == chosen
            == Scenario.of("llama-3-8B", "h100_80g_sxm", **asked, framework=each)
        )


def test_frameworks_are_the_same_everywhere() -> None:
    assert list(launch.FRAMEWORKS) == list(FRAMEWORK_RULES)
    for name, framework in launch.FRAMEWORKS.items():
        assert (framework.rules, framework.title) == (FRAMEWORK_RULES[name], FRAMEWORK_RULES[name].title)
        assert set(framework.rules.elsewhere) <= {column.name for column in ALL_FIELDS}
    choices, _ = get_args(ScenarioDocument.model_fields["framework"].annotation)
    assert get_args(choices) == FRAMEWORK_WORDS


def test_wrong_frameworks_are_named() -> None:
    asked: dict[str, Any] = {"num_procs": 16, "max_batch_size": 32, "datatype": "bfloat16"}
    with pytest.raises(LimitError, match=r"^The framework is 'megatron-ln'; did you mean 'megatron'"):
        Scenario.of("llama-3-8B", "h100_80g_sxm", **asked, framework="megatron-ln")
    with pytest.raises(LimitError, match=r"cost model calculon does not have all settings"):
        Scenario.of("gpt3-13B", "h100_80g_nvl8", **{**asked, "datatype": "float16"}, framework="megatron")
    with pytest.raises(LimitError, match=r"^The framework is 'megatron', but a limit says 'maxtext'"):
        Scenario.of("llama-3-8B", "h100_80g_sxm", **asked, framework="megatron", limits={"framework": "maxtext"})
    both = Scenario.of("llama-3-8B", "h100_80g_sxm", **asked, framework="maxtext", limits={"framework": "maxtext"})
    assert both.framework == "maxtext"


def test_a_datatype_without_a_word_leaves_nothing() -> None:
    asked: dict[str, Any] = {"num_procs": 16, "max_batch_size": 32}
    for name in ("deepspeed", "maxtext"):
        without = [each.name for each in datatypes.for_products(8) if datatypes.word_for(name, each.name) is None]
        offered = Scenario.of("llama-3-8B", "b200_180g_sxm", **asked, datatype="bfloat16").system.offered_datatypes
        for datatype in set(without) & set(offered):
            scenario = Scenario.of("llama-3-8B", "b200_180g_sxm", **asked, datatype=datatype, framework=name)
            assert scenario.space.total == 0
            assert not best_of(scenario)
            assert explore_scenario(scenario, workers=1).total == 0
