"""Recomputation by module: a larger set never takes more memory and never less time, and each word is itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardware
import models
from engine.columns import by_name
from engine.columns.recompute_modules import MODULES, RecomputeModulesError, module_bits, modules_of_word
from engine.cost_models.calibrated import RECOMPUTES, Case, case_of, memory_use, parameters, step_times
from tests.properties.test_calibrated_everywhere import everywhere

FULL, NONE, BY_MODULE = (float(RECOMPUTES.index(name)) for name in ("full", "none", "by_module"))
PATTERNED = ("deepseek-v3.2", "jamba-1.5-mini", "qwen3-next-80B-A3B", "granite-4.0-h-small", "gemma-3-12B")
"""Models whose blocks are patterns of several layers."""


def recomputing(case: Case, kind: float, modules: object = 0.0) -> Case:
    """The same rows with this recomputation in every block."""
    shape = np.shape(case.layout.recompute)
    layout = replace(
        case.layout,
        recompute=np.full(shape, kind),
        recompute_share=np.ones(()),
        recompute_modules=np.broadcast_to(np.asarray(modules, np.float64), shape),
    )
    return replace(case, layout=layout)


def ordered(case: Case, draw: np.random.Generator) -> None:
    """No recomputation, a set of modules, a larger set, all blocks: memory falls and time rises."""
    rows = np.size(case.layout.recompute)
    some = draw.integers(0, 1 << len(MODULES), rows)
    more = some | draw.integers(0, 1 << len(MODULES), rows)
    chain = [
        recomputing(case, NONE),
        recomputing(case, BY_MODULE, some),
        recomputing(case, BY_MODULE, more),
        recomputing(case, FULL),
    ]
    p = parameters()
    held = [np.broadcast_to(memory_use(each).peak, rows) for each in chain]
    took = [np.broadcast_to(step_times(each, p).step, rows) for each in chain]
    for place in range(3):
        # Full recomputation of unfused attention is by another publication's count of bytes.
        if place < 2 or not (case.software.attention_kernel == 0).any():
            assert (held[place + 1] <= held[place] * (1 + 1e-12)).all()
        assert (took[place + 1] >= took[place] * (1 - 1e-12)).all()
    assert (held[2] < held[0]).mean() > 0.3
    assert (took[2] > took[0]).mean() > 0.3


@pytest.mark.parametrize("seed", range(3))
def test_more_modules_never_take_more_memory_nor_less_time(seed: int) -> None:
    ordered(everywhere(seed), np.random.default_rng(seed))


@pytest.mark.parametrize("name", PATTERNED)
def test_nor_do_they_in_blocks_of_other_layers(name: str) -> None:
    draw = np.random.default_rng(len(name))
    rows = 200
    degrees = {key: draw.choice([1, 2, 4], rows) for key in ("tensor_par", "pipeline_par", "data_par")}
    executions = {
        **degrees,
        "microbatch_size": draw.choice([1, 2], rows),
        "batch_size": 16 * degrees["data_par"],
        "linear_bits": draw.choice([8.0, 16.0], rows),
        "attention_kernel": "native",
        "recompute": np.zeros(rows),
    }
    ordered(case_of(models.load(name), hardware.load("h100_80g_sxm"), executions), draw)


@pytest.mark.parametrize("model", ["deepseek-v3", "llama-3-8B"])
def test_every_module_is_itself(model: str) -> None:
    """What a module saves and repeats is its own; words that a model has no layer for change nothing."""
    one: dict[str, object] = {
        "tensor_par": 1,
        "pipeline_par": 1,
        "data_par": 64,
        "microbatch_size": 1,
        "batch_size": 512,
        "recompute": "by_module",
        "recompute_modules": [0.0, *(module_bits([each]) for each in MODULES)],
        "attention_kernel": "native",
    }
    case = case_of(models.load(model), hardware.load("h100_80g_sxm"), one)
    held = dict(zip(("none", *MODULES), memory_use(case).peak.tolist(), strict=True))
    took = dict(zip(("none", *MODULES), step_times(case, parameters()).step.tolist(), strict=True))
    idle = {"core_attn"} if model == "deepseek-v3" else {*MODULES} - {"layernorm", "mlp"}
    for word in MODULES:
        assert (held[word] == held["none"]) == (word in idle), word
        assert (took[word] == took["none"]) == (word in idle), word
    for first, second in combinations(sorted({*MODULES} - idle), 2):
        assert held[first] != held[second]
        assert took[first] != took[second]


@given(st.lists(st.sampled_from(MODULES), min_size=1), st.sampled_from(["+", " ", ", "]))
def test_equal_sets_have_one_word(modules: list[str], between: str) -> None:
    column = by_name("selective_recompute")
    position = column.position(between.join(modules))
    assert position == column.position("+".join(sorted(set(modules))))
    assert set(modules_of_word(column.words[position])) == set(modules)
    assert (column.words[position] == "attention") == (set(modules) == {"core_attn"})


@pytest.mark.parametrize("word", ["norms", "layernorm+", "moe_act+magic", "", "half+moe"])
def test_unknown_modules_are_named(word: str) -> None:
    if word == "layernorm+":
        assert modules_of_word(word) == ("layernorm",)
        return
    with pytest.raises(RecomputeModulesError, match="joined by"):
        modules_of_word(word)
    assert by_name("selective_recompute").position(word) == -1
