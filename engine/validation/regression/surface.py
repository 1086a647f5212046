"""Sample of the support surface: executions of every kind of model, generation, layout, field and datatype.

The sample follows from the libraries of models and systems and from the register of fields, without a list of its own:
a new model, system or field joins by itself. Choices are made by a hash of names, so that a new entry leaves all others
where they are, and sizes by rules of thumb, never by a prediction, so that the sample is the same for every revision.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import hardware
import models
from engine.columns import ALL_FIELDS, Column, applies, by_name
from engine.columns.rules import EXPERTS, SECOND_TIER, holds
from engine.cost_models.calibrated import CALIBRATED, model_shapes, split_sizes
from hardware import GIB, System
from models import Model

__all__ = [
    "LAYOUTS",
    "SurfacePart",
    "build_surface",
    "differing_fields",
    "generation_title",
    "layer_titles",
]

VARIED_SHARE, CROSSED_SHARE = 6, 4
"""One in so many changes of a field is tried on each pair of model and system, and one in so many pairs of a kind of
model and a generation is tried besides the pair of every model."""
LONG_SEQUENCE = 32_768
"""Length of samples of the layout with context parallelism [tokens]."""
LARGEST_TENSOR = LARGEST_EXPERT = 8
"""Largest tensor and expert parallel degrees of the samples: the GPUs of a usual host."""
MODEL_STATE, OPTIMIZER_STATE = 6.0, 12.0
"""Bytes per weight of weights and gradients, and of master weights and moments, for a rule of thumb of sizes."""
STATE_SHARE, LAYOUT_SHARE = 0.15, 0.25
"""Shares of the memory for the state of the optimizer and for weights and gradients, for the same rule."""
MOST_STAGES, MOST_REPLICAS = 32, 4_096
"""Largest pipeline and data parallel degrees of the samples."""

PLAIN: dict[str, Any] = {
    "num_procs": 8,
    "tensor_par": 1,
    "pipeline_par": 1,
    "data_par": 1,
    "tensor_par_net": 0,
    "pipeline_par_net": 0,
    "data_par_net": 0,
    "batch_size": 64,
    "microbatch_size": 1,
    "datatype": "bfloat16",
    "fused_activation": True,
    "attention_type": "multihead",
    "activation_recompute": "none",
    "pipeline_interleaving": 1,
    "optimizer_sharding": True,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "none",
    "seq_par_ag_redo": False,
    "data_par_overlap": True,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "training": True,
}
"""Values of the 23 fields from which executions differ. Extensions are given where they are varied."""
NOT_GIVEN = object()
DEGREES = ("tensor_par", "pipeline_par", "context_par")
"""Fields whose product with the replicas is the number of processors."""
SETTLED = frozenset(
    {
        "optimizer_sharding",
        "num_procs",
        "data_par",
        "batch_size",
        "datatype",
        "training",
        "attention_type",
        *CALIBRATED.columns.not_read,
    }
)
"""Fields that are not varied on their own."""

Execution = dict[str, Any]


@dataclass(frozen=True)
class SurfacePart:
    """Executions of one model on one system.

    `layout` is one of `LAYOUTS`; `executions` have the 23 fields and the extensions that they set; `changes` are the
    names of the fields that they vary, "" of the layout as it is.
    """

    model: str
    seq_size: int
    """Length of the samples [tokens]."""
    system: str
    layout: str
    executions: list[Execution] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)


def build_surface() -> list[SurfacePart]:
    """Return the sample: every library model and system, and kinds of models on generations, each in one layout."""
    found = []
    for model, system in _list_pairs():
        layout = _choose(list(LAYOUTS), model.name, system.name)
        seq_size, execution = LAYOUTS[layout](model, system)
        part = SurfacePart(model.name, seq_size, system.name, layout)
        for change, varied in _vary(model, system, layout, execution):
            if varied not in part.executions:
                part.executions.append(varied)
                part.changes.append(change)
        found.append(part)
    return found


def layer_titles(model: Model) -> tuple[str, ...]:
    """Return the kinds of layers in a model, such as ("attention", "experts").

    Args:
        model: any model.
    """
    pattern = model_shapes(model).pattern
    if pattern is not None:
        return tuple(dict.fromkeys(layer.title for block in pattern.blocks for layer in block.layers))
    shapes = model_shapes(model)
    windows = ("windowed attention",) if shapes.window > 0 else ()
    attention = "latent attention" if shapes.latent > 0 else "attention"
    return (attention, *windows, "experts" if shapes.experts > 0 else "MLP")


def generation_title(system: System) -> str:
    """Return the maker's name of a system's architecture, such as "hopper"; "" where it is not recorded.

    Args:
        system: any system.
    """
    return "" if system.accelerator is None else system.accelerator.generation


def differing_fields(execution: Mapping[str, Any]) -> str:
    """Return the fields of an execution other than plain ones, such as "num_procs=64 tensor_par=8".

    It identifies an execution across revisions: a field that is added later does not change it.

    Args:
        execution: fields by name.
    """
    return " ".join(f"{name}={value}" for name, value in execution.items() if PLAIN.get(name, NOT_GIVEN) != value)


def _list_pairs() -> Iterator[tuple[Model, System]]:
    """Yield pairs: one of every model, some of kinds of models on generations, and one of every other system."""
    every = {name: models.load(name) for name in models.names()}
    systems = {name: hardware.load(name) for name in hardware.names()}
    kinds: dict[str, list[str]] = {}
    for name, model in every.items():
        kinds.setdefault(", ".join(sorted(layer_titles(model))), []).append(name)
    generations: dict[str, list[str]] = {}
    for name, system in systems.items():
        generations.setdefault(generation_title(system), []).append(name)
    chosen = [(name, _choose(list(systems), name)) for name in every]
    chosen += [
        (_choose(alike, kind, generation), _choose(machines, generation, kind))
        for kind, alike in kinds.items()
        for generation, machines in generations.items()
        if _hash(kind, generation) % CROSSED_SHARE == 0
    ]
    seen = {system for _, system in chosen}
    chosen += [(_choose(list(every), name), name) for name in systems if name not in seen]
    for name, machine in dict.fromkeys(chosen):
        yield every[name], systems[machine]


def _choose(names: Sequence[str], *key: str) -> str:
    """Return the name with the largest hash with a key: another name in the list changes few choices."""
    return max(names, key=lambda name: (_hash(name, *key), name))


def _hash(*words: str) -> int:
    return int.from_bytes(hashlib.blake2b("|".join(words).encode(), digest_size=6).digest(), "big")


def _lay_out_pipeline(model: Model, system: System) -> tuple[int, Execution]:
    """Return tensor, pipeline, expert and data parallelism with selective recomputation."""
    tensor, stages, replicas, experts = _degrees(model, system)
    return model.seq_size, _plain_execution(system) | {
        "num_procs": tensor * stages * replicas,
        "tensor_par": tensor,
        "pipeline_par": stages,
        "data_par": replicas,
        "expert_par": experts,
        "batch_size": 8 * stages * replicas,
        "activation_recompute": "attn_only",
        "tensor_par_comm_type": "rs_ag" if tensor > 1 else "ar",
    }


def _lay_out_long_sequences(model: Model, system: System) -> tuple[int, Execution]:
    """Return the pipeline with long sequences, context parallelism and full recomputation."""
    _, pipeline = _lay_out_pipeline(model, system)
    longer = {"num_procs": 4 * pipeline["num_procs"], "context_par": 4, "activation_recompute": "full"}
    return LONG_SEQUENCE, pipeline | longer


def _lay_out_shards(model: Model, system: System) -> tuple[int, Execution]:
    """Return fully sharded data parallelism with compiled kernels and full recomputation."""
    state = MODEL_STATE + OPTIMIZER_STATE
    replicas = max(16, _power_of_two(state * _count_weights(model)[0] / (STATE_SHARE * _capacity(system))))
    return model.seq_size, _plain_execution(system) | {
        "num_procs": replicas,
        "data_par": replicas,
        "batch_size": 2 * replicas,
        "tensor_par_comm_type": "ar",
        "activation_recompute": "full",
        "zero_stage": 3,
        "attention_kernel": "flash2",
        "launch": "compiled",
    }


LAYOUTS: Mapping[str, Callable[[Model, System], tuple[int, Execution]]] = {
    "pipeline": _lay_out_pipeline,
    "long sequences": _lay_out_long_sequences,
    "shards": _lay_out_shards,
}
"""Layouts of a model on a system by name: length of samples [tokens] and execution."""


def _plain_execution(system: System) -> Execution:
    """Return plain values of the 23 fields, in a datatype that a system has."""
    datatype = "bfloat16" if system.has_rate("bfloat16") else "float16"
    return PLAIN | {"datatype": datatype}


def _degrees(model: Model, system: System) -> tuple[int, int, int, int]:
    """Return degrees at which weights and optimizer should fit, as a rule of thumb: tensor, stages, replicas,
    experts."""
    shapes, capacity = model_shapes(model), _capacity(system)
    total, active = _count_weights(model)
    if shapes.pattern is not None:
        sizes = [size for _, size in split_sizes(shapes.pattern)[0]]
    else:
        sizes = [int(shapes.attn_heads), int(shapes.hidden)]
        sizes += [] if shapes.latent > 0 else [int(shapes.key_value_heads)]
        sizes += [] if shapes.experts > 0 else [int(shapes.feedforward)]
    tensor = math.gcd(LARGEST_TENSOR, *sizes)
    experts = math.gcd(LARGEST_EXPERT, int(shapes.experts)) if shapes.experts > 0 else 1
    held = MODEL_STATE * (active / tensor + (total - active) / experts)
    stages = min(max(2, _power_of_two(held / (LAYOUT_SHARE * capacity))), MOST_STAGES)
    while stages > int(shapes.num_blocks):
        stages //= 2
    replicas = _power_of_two(OPTIMIZER_STATE * total / (tensor * stages * STATE_SHARE * capacity))
    return tensor, stages, min(max(replicas, experts, 2), MOST_REPLICAS), experts


def _count_weights(model: Model) -> tuple[float, float]:
    """Return all weights, and the weights that one token visits; 12 hidden^2 per block where no shape is recorded."""
    if model.counts is None:
        total = 12.0 * model.hidden**2 * model.num_blocks
        return total, total
    return float(model.counts.total), float(model.counts.active)


def _capacity(system: System) -> float:
    return min(system.mem1.capacity_gib, 1_024.0) * GIB  # one of Calculon's systems has no limit


def _power_of_two(value: float) -> int:
    return int(2 ** max(math.ceil(math.log2(max(value, 1.0))), 0))


def _vary(model: Model, system: System, layout: str, execution: Execution) -> Iterator[tuple[str, Execution]]:
    """Yield an execution and a share of its changes of one field, each with the name of the field."""
    yield "", execution
    known = execution | {EXPERTS: model_shapes(model).experts, SECOND_TIER: system.mem2.capacity_gib}
    changes = [(column.name, value) for column in _varied_fields() for value in _other_values(column)]
    for name, value in [*changes, *(("datatype", each) for each in CALIBRATED.datatypes if system.has_rate(each))]:
        companions = _companions(by_name(name), known)
        is_left_out = _hash(model.name, system.name, layout, name, str(value)) % VARIED_SHARE > 0
        if is_left_out or execution.get(name, NOT_GIVEN) == value:
            continue
        varied: Execution = execution | {name: value} | companions
        if name in DEGREES:
            varied["data_par"] = max(execution["data_par"] * execution.get(name, 1) // value, 1)
            varied["num_procs"] = math.prod(varied.get(each, 1) for each in DEGREES) * varied["data_par"]
        elif not applies(name, known | companions):
            continue
        yield name, varied | {"optimizer_sharding": varied.get("zero_stage", 1) > 0}
        if name in ("schedule", "stage_layout"):  # some schedules need several chunks per stage
            yield name, varied | {"pipeline_interleaving": 2}


def _companions(column: Column, known: Mapping[str, Any]) -> Execution:
    """Return values of other fields without which a field has no effect, where setting them is enough.

    Degrees, experts and memory tiers are not set: other layouts, models and systems have them.
    """
    found: Execution = {}
    for condition in column.applies:
        name = condition.names[0]
        if holds((condition,), known) or name in {*DEGREES, *SETTLED, EXPERTS, SECOND_TIER}:
            continue
        found[name] = condition.words[0] if condition.words else int(condition.above) + 1
    return found


@cache
def _varied_fields() -> tuple[Column, ...]:
    return tuple(column for column in ALL_FIELDS if column.name not in SETTLED)


def _other_values(column: Column) -> tuple[Any, ...]:
    """Return values to try of a field: all of a choice, multiples of the default of a number."""
    if column.dtype == "bool":
        return (False, True)
    if column.choices or column.numbers:
        return column.choices or column.numbers
    usual = column.default if isinstance(column.default, int | float) and column.default else 1
    return (usual, 2 * usual, 4 * usual)
