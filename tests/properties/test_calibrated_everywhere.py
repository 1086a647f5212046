"""Predictions for every model of the library on every accelerator: finite, positive, and the sum of their parts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

import hardware
import models
from engine.columns.recompute_modules import MODULES
from engine.cost_models.calibrated import (
    SIZES,
    Accelerators,
    Case,
    Layout,
    ModelShapes,
    ProcessorMemory,
    Software,
    StepTimes,
    accelerator_of,
    memory_use,
    model_shapes,
    parameters,
    step_times,
)
from engine.cost_models.calibrated.case_building import SOFTWARE_DEFAULTS
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS, LAUNCHES, RECOMPUTES
from engine.cost_models.calibrated.physics.pipeline.schedules import (
    SCHEDULES,
    chunks_per_rank,
    plain_schedule,
    refusals,
)

LAYOUTS = 6
"""Random layouts for each pair of a model and an accelerator."""
MODELS = [name for name in models.plain_names() if model_shapes(models.load(name)).pattern is None]
SYSTEMS = [name for name in hardware.names() if hardware.load(name).accelerator is not None]


def everywhere(seed: int) -> Case:
    """Every model on every accelerator, each in `LAYOUTS` random layouts that its sizes allow."""
    draw = np.random.default_rng(seed)
    shapes = [model_shapes(models.load(name)) for name in MODELS]
    systems = [accelerator_of(hardware.load(name)) for name in SYSTEMS]
    of_model, of_system = (
        index.ravel()
        for index in np.meshgrid(np.arange(len(shapes)), np.repeat(np.arange(len(systems)), LAYOUTS), indexing="ij")
    )
    rows = len(of_model)
    model = {name: np.array([float(getattr(shape, name)) for shape in shapes])[of_model] for name in SIZES}

    def of_each(values: list[Any]) -> Any:
        if isinstance(values[0], tuple):  # a system of one network as if it had two that are alike
            return tuple(of_each([(*value, value[-1])[tier] for value in values]) for tier in range(2))
        return np.array(values)[of_system]

    machine = {name: of_each([system[name] for system in systems]) for name in systems[0]}

    def any_of(*choices: float) -> Any:
        return draw.choice(np.array(choices, np.float64), rows)

    def common(a: Any, b: Any) -> Any:
        return np.gcd(a.astype(np.int64), b.astype(np.int64)).astype(np.float64)

    tensor = common(any_of(1, 2, 4, 8, 16, 64), model["attn_heads"])
    stages = np.minimum(any_of(1, 2, 3, 8, 16), model["num_blocks"])
    routed = np.maximum(model["experts"], 1.0)
    data, context, microbatch = any_of(1, 2, 8, 11, 256), any_of(1, 2, 8), any_of(1, 2, 16)
    layout = {
        "tensor_par": tensor,
        "pipeline_par": stages,
        "data_par": data,
        "context_par": context,
        "expert_par": common(common(any_of(1, 2, 8, 64), routed), data * context),
        "expert_tensor_par": np.where(draw.random(rows) < 0.5, tensor, 1.0),
        "pipeline_interleaving": np.where(stages > 1, np.minimum(any_of(1, 2, 4), model["num_blocks"] // stages), 1.0),
        "microbatch_size": microbatch,
        "batch_size": data * microbatch * any_of(1, 3, 64),
        "sequence_par": any_of(0, 1),
        "zero_stage": any_of(0, 1, 2, 3),
        "fully_sharded": any_of(0, 1),
        "linear_bits": any_of(4, 8, 16),
        "recompute": any_of(*range(len(RECOMPUTES))),
        "recompute_share": any_of(0.5, 1.0),
        "recompute_modules": any_of(*range(1 << len(MODULES))),
    }
    software = {name: value for name, value in SOFTWARE_DEFAULTS.items() if not isinstance(value, str)}
    software |= {
        "attention_kernel": any_of(*range(len(ATTENTION_KERNELS))),
        "launch": any_of(*range(len(LAUNCHES))),
        "unfused_elementwise": any_of(0, 1, 2),
        "age_years": any_of(0, 1, np.inf),
        "gather_calls": any_of(1, 12),
        **{name: any_of(0, 1) for name in software if name.startswith("overlap") or name == "grouped_experts"},
    }
    layout |= _scheduled(layout, model["num_blocks"], any_of(*range(len(SCHEDULES))))
    return Case(ModelShapes.of(model), Accelerators.of(machine), Layout.of(layout), Software.of(software))


def _scheduled(layout: dict[str, Any], blocks: Any, schedule: Any) -> dict[str, Any]:
    """These schedules with the chunks that they need, and 1F1B where the rest of the layout does not allow one."""
    stages, needed = layout["pipeline_par"], chunks_per_rank(schedule)
    several = schedule == SCHEDULES.index("combined_1f1b")
    chunks = np.where(needed > 0, needed, layout["pipeline_interleaving"])
    chunks = np.where(several, np.maximum(chunks, 2.0), chunks)
    microbatches = layout["batch_size"] / (layout["data_par"] * layout["microbatch_size"])
    possible = ~np.logical_or.reduce(list(refusals(schedule, stages, microbatches, chunks).values()))
    possible &= (stages * chunks <= blocks) & (schedule > SCHEDULES.index("interleaved"))
    chunks = np.where(possible, chunks, layout["pipeline_interleaving"])
    return {
        "pipeline_interleaving": chunks,
        "schedule": np.where(possible, schedule, plain_schedule(chunks)).astype(np.float64),
    }


def test_the_library_is_whole() -> None:
    makers = {system.accelerator.name for name in SYSTEMS if (system := hardware.load(name)).accelerator}
    assert len(MODELS) >= 161
    assert len(makers) >= 31


@pytest.mark.parametrize("seed", [0, 1])
def test_predictions_are_finite_and_positive_everywhere(seed: int) -> None:
    case, p = everywhere(seed), parameters()
    with np.errstate(all="raise", under="ignore"):
        found, memory = step_times(case, p), memory_use(case)
    assert len(found.step) == len(MODELS) * len(SYSTEMS) * LAYOUTS
    assert (found.step > 0).all()
    parts = [getattr(found, field.name) for field in fields(StepTimes) if field.name != "step"]
    for part in parts:
        assert np.isfinite(part).all()
        assert (part > -1e-9 * found.step).all()
    np.testing.assert_allclose(np.sum(parts, axis=0), found.step, rtol=1e-9)
    held = [getattr(memory, field.name) for field in fields(ProcessorMemory) if field.name != "peak"]
    assert np.isfinite(memory.peak).all()
    assert (memory.peak > 0).all()
    for part in held:
        assert (part >= 0).all()
    np.testing.assert_allclose(np.sum(held, axis=0), memory.peak, rtol=1e-9)


def test_no_step_is_faster_than_its_products_at_the_peak() -> None:
    case = everywhere(2)
    model, layout, facts = case.model, case.layout, case.accelerator
    # Projections of plain attention and one feed-forward layer, forward and backward, at the highest peak there is.
    width = np.where(model.experts > 0, model.experts_per_token * model.expert_feedforward, model.feedforward)
    weights = model.num_blocks * 2.0 * model.hidden * np.minimum(width, model.feedforward)
    operations = 6.0 * weights * layout.batch_size * model.seq_size / case.processors
    peak = np.maximum(np.maximum(facts.flops16, facts.flops8), facts.flops4)
    assert (step_times(case, parameters()).step > operations / peak).all()
