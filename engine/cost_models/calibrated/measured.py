"""Measured kinds of runs, and the properties of an execution that no run has.

Every property that affects a prediction has a name, its words on screen. The package stores which of them occur among
the runs that the model was fitted and tested on (`data/measured.csv`); every page that shows a figure also shows the
names that `not_measured` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.columns import ALL_FIELDS, choice_label
from engine.cost_models.calibrated.fields import case_of_fields, read
from engine.cost_models.calibrated.physics.formats import SCALED
from engine.cost_models.calibrated.physics.inputs import (
    ATTENTION_KERNELS,
    BY_MODULE,
    CONTEXT_EXCHANGES,
    DISPATCHERS,
    GENERATIONS,
    LAUNCHES,
    RECOMPUTES,
    Case,
)
from engine.cost_models.calibrated.physics.layers.recompute import repeated_modules
from engine.cost_models.calibrated.physics.layers.views import modelled_layers
from engine.cost_models.calibrated.physics.pipeline.schedules import SCHEDULES
from engine.cost_models.calibrated.systems import calibrated, generation_of
from hardware import System
from models import Model, datatypes
from models.datatypes import Datatype

__all__ = [
    "MEASURED_FILE",
    "OFFLOADS",
    "aspects",
    "generation_words",
    "kind_words",
    "measured_kinds",
    "not_measured",
    "precision_words",
    "schedule_words",
]

OFFLOADS = {
    "weight_offload": "offloading weights",
    "activations_offload": "offloading activations",
    "optimizer_offload": "offloading the optimizer",
}
MEASURED_FILE = Path(str(files("engine.cost_models.calibrated").joinpath("data", "measured.csv")))
"""The words of everything that occurs among the measured runs; `engine.validation` writes it."""
GENERATION_WORDS = {
    "cdna3": "CDNA 3",
    "cdna4": "CDNA 4",
    "tpu v4": "TPU v4",
    "tpu v5e": "TPU v5e",
    "tpu v5p": "TPU v5p",
    "tpu v6e": "TPU v6e",
    "tpu7x": "TPU7x",
    "other": "other processors",
}
"""Generations that are not written like any other name."""
NOTHING = ""
PRODUCTS = "-bit matrix products"
Words = npt.NDArray[np.str_]


def generation_words(generation: str) -> str:
    """Returns a generation of processors as people write it.

    Args:
        generation: one of `GENERATIONS`.
    """
    return GENERATION_WORDS.get(generation, generation.capitalize())


def kind_words(experts: bool) -> str:
    """Returns a kind of model in words.

    Args:
        experts: whether the models have experts.
    """
    return "mixtures of experts" if experts else "dense models"


def precision_words(bits: int, generation: str) -> str:
    """Returns matrix products in a precision on a generation, in words.

    Args:
        bits: width of the factors [bits].
        generation: one of `GENERATIONS`.
    """
    return f"{bits}{PRODUCTS} on {generation_words(generation)}"


def schedule_words(schedule: str) -> str:
    """Returns a pipeline schedule in words.

    Args:
        schedule: one of `SCHEDULES`.
    """
    return f"schedule {choice_label('schedule', schedule)}"


def aspects(case: Case, offloads: Mapping[str, Any], rows: int) -> dict[str, Words]:
    """Return the properties that affect the predictions of some rows: words per aspect [rows], empty for absent ones.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        offloads: fields of `OFFLOADS` by name, arrays [rows] or truths; measured runs with any of them are not
            predicted.
        rows: number of rows.
    """
    layout, software, model = case.layout, case.software, case.model
    generation = _choice_words(case.accelerator.generation, [generation_words(name) for name in GENERATIONS], rows)
    plain = np.char.mod("%.0f" + PRODUCTS, _broadcast_rows(layout.linear_bits, rows))
    scaled = _choice_words(layout.linear_format, ["", *map(_product_words, SCALED)], rows)
    bits = np.where(_broadcast_rows(layout.linear_format, rows) > 0, scaled, plain)
    experts = np.where(_broadcast_rows(model.experts, rows) > 0, kind_words(True), kind_words(False))
    schedules = _choice_words(np.maximum(layout.schedule, 0), [schedule_words(name) for name in SCHEDULES], rows)
    spread = (layout.expert_par > 1) & (model.experts > 0)
    sent = [NOTHING, *(f"token dispatcher {choice_label('token_dispatcher', name)}" for name in DISPATCHERS[1:])]
    rings = [NOTHING, *(f"CP communication {choice_label('context_par_comm', name)}" for name in CONTEXT_EXCHANGES[1:])]
    switches = {
        "latent": (model.latent, "latent attention"),
        "window": (model.window, "sliding windows"),
        "context_par": (layout.context_par > 1, "context parallelism"),
        "expert_par": (layout.expert_par > 1, "expert parallelism"),
        "overlap_tensor": (software.overlap_tensor, "overlap of tensor-parallel transfers"),
        "overlap_data": (software.overlap_data, "overlap of data-parallel transfers"),
        "overlap_expert": (software.overlap_expert, "overlap of expert exchange"),
        "overlap_pipeline": (software.overlap_pipeline, "overlap of pipeline transfers"),
        "dispatch_bytes": (spread & (software.dispatch_bytes < 2), "tokens sent in 8 bits"),
        "busiest_load": (spread & (software.busiest_load > 1), "an uneven load of experts"),
        "moment_bytes": (software.moment_bytes < 4, "an optimizer in 16 bits"),
        "fp8_parameters": (software.fp8_parameters * (layout.linear_bits < 16), "parameters in 8 bits"),
        **{name: (offloads[name], words) for name, words in OFFLOADS.items()},
        **{title: (1.0, title) for title in modelled_layers(model.pattern)},
    }
    return {
        "generation": generation,
        "precision": _append_generation(bits, generation),
        "model": _append_generation(experts, generation),
        "zero_stage": np.char.mod("ZeRO stage %.0f", _broadcast_rows(layout.zero_stage, rows)),
        **_recompute_words(case, rows),
        "attention_kernel": _choice_words(
            software.attention_kernel, [f"attention kernel {name}" for name in ATTENTION_KERNELS], rows
        ),
        "launch": _choice_words(software.launch, [f"launches of kind {name}" for name in LAUNCHES], rows),
        "token_dispatcher": _choice_words(software.token_dispatcher * spread, sent, rows),
        "context_par_comm": _choice_words(software.context_par_comm * (layout.context_par > 1), rings, rows),
        "schedule": np.where(_broadcast_rows(layout.pipeline_par, rows) > 1, schedules, NOTHING),
        **{name: np.where(_broadcast_rows(on, rows) > 0, words, NOTHING) for name, (on, words) in switches.items()},
    }


def _recompute_words(case: Case, rows: int) -> dict[str, Words]:
    """Return the words of recomputation [rows]: the kind, and of sets of modules each module."""
    kinds = [f"recomputation of kind {name}" for name in RECOMPUTES]
    named = [*kinds[:BY_MODULE], NOTHING]
    some = _broadcast_rows(case.layout.recompute_share, rows) < 1.0
    found = {"recompute_share": np.where(some, "recomputation of some blocks", NOTHING)}
    found |= {"recompute": _choice_words(case.layout.recompute, named, rows)}
    modules = repeated_modules(case)
    if not modules:
        return found
    # Norms and activation functions together are the kind that they were before modules had words of their own.
    both = _broadcast_rows(modules["layernorm"] * modules["moe_act"], rows) > 0
    found["recompute"] = np.where(both, kinds[RECOMPUTES.index("modules")], found["recompute"])
    words = {name: f"recomputation of {name}" for name in modules} | {"core_attn": kinds[RECOMPUTES.index("selective")]}
    return found | {
        f"recompute_{name}": np.where(_broadcast_rows(on, rows) > 0, words[name], NOTHING)
        for name, on in modules.items()
    }


@cache
def measured_kinds() -> frozenset[str]:
    """Returns the words of everything that occurs among the measured runs."""
    with MEASURED_FILE.open(encoding="utf-8") as file:
        return frozenset(pd.read_csv(file)["thing"])


def not_measured(model: Model, system: System, executions: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the properties of executions that no measured run had, in words, one entry per row.

    On processors of a generation without any run, that is named instead of models and precisions on it.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        executions: one row per execution, with at least the 23 fields.

    Raises:
        engine.ExecutionTableError: the executions lack one of the 23 columns.
    """
    if not len(executions):
        return []
    names = [column.name for column in ALL_FIELDS if column.name in executions]
    fields = read(model, system, executions[names]).arrays
    case = case_of_fields(model, system, fields)
    found = aspects(case, {name: fields[name] for name in OFFLOADS}, len(executions))
    measured, own = measured_kinds(), generation_words(generation_of(system))
    is_new = not calibrated(system)
    first: tuple[str, ...] = ("this generation of processors",) if is_new else ()
    if model.tuning is not None and model.tuning.frozen_weight_bits < 16:
        first = (*first, f"frozen weights in {model.tuning.frozen_weight_bits} bits")
    named = []
    for column in found.values():  # with few words, whatever the number of rows
        words = column.tolist()
        known = {one for one in set(words) if one in measured or (is_new and one.endswith(own))}
        if set(words) - known - {NOTHING}:
            named.append([NOTHING if one in known else one for one in words])
    return [(*first, *filter(None, words)) for words in zip(*named, strict=True)] or [first] * len(executions)


def _product_words(datatype: Datatype) -> str:
    """Return matrix products in a datatype as measured runs have them; in its own name if no run had it."""
    if datatype.measured_as:
        return f"{datatypes.named(datatype.measured_as).bits}{PRODUCTS}"
    return f"{datatype.label}{PRODUCTS.removeprefix('-bit')}"


def _broadcast_rows(values: Any, rows: int) -> npt.NDArray[np.float64]:
    return np.broadcast_to(np.asarray(values, np.float64), rows)


def _choice_words(positions: Any, choices: Sequence[str], rows: int) -> Words:
    return np.asarray(np.array(choices)[_broadcast_rows(positions, rows).astype(int)])


def _append_generation(words: Words, generation: Words) -> Words:
    return np.char.add(np.char.add(words, " on "), generation)
