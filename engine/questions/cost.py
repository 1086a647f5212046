"""Verb about the cost of a training run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd
from pydantic import Field

import engine
from engine.cost_models.registry import chosen_cost_model
from engine.economics import (
    CONVENTIONS,
    INPUTS,
    OUTPUTS,
    RunInputs,
    TrainingRun,
    parameter_count,
    token_flops,
    tokens_per_second,
    tokens_per_second_at,
    training_run,
    utilisation,
)
from engine.questions.bounds import Context
from engine.questions.documents.cost import CostQuestion
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Verb
from hardware import System
from models import Model
from models.documents import shown

__all__ = ["COST", "TrainingCost", "cost_document", "find_training_cost"]

SPEEDS = ("step_time_s", "tokens_per_s", "tflops", "execution")
"""Fields of a question, of which exactly one gives the speed."""
PRICES = (("usd_low", "usd_high"), ("usd_high", "usd_low"))


class ModelUtilisation(Document):
    """Utilisation of the processors' peak rate."""

    mfu: float = Field(description="Model-FLOP utilisation, 0 to 1.")
    hfu: float = Field(description="Hardware-FLOP utilisation, 0 to 1: recomputation counts.")
    attention: Literal["full", "causal"]
    recompute: Literal["none", "attn_only", "full"]
    datatype: str
    peak_flops_per_s: float = Field(description="Of a processor [FLOP/s].")
    model_flops_per_token: float = Field(description="[FLOP]")


class CostAnswer(Document):
    """Time, money, energy and goodput of a training run; `formulas` explains each figure, `units` has its unit."""

    procs: int
    parameters: float
    tokens_per_s: float
    tokens_per_s_per_proc: float
    compute_s: float
    system_mtbf_s: float
    checkpoint_bytes: float
    checkpoint_s: float
    young_s: float
    daly_s: float
    interval_s: float
    failures: float
    goodput: float
    wall_s: float
    proc_hours: float
    usd: list[float] | None = Field(description="Lowest and highest cost; null without a price.")
    energy_kwh: float | None = Field(description="Null without a power.")
    time_parts_s: dict[str, float] = Field(description="Parts of the wall-clock time [s].")
    usd_per_billion_tokens: list[float] | None
    kwh_per_billion_tokens: float | None
    inputs: dict[str, float | None] = Field(description="Assumptions of the run.")
    units: dict[str, str]
    formulas: dict[str, str]
    utilisation: ModelUtilisation


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """Training run of a question, and the utilisation of its processors."""

    run: TrainingRun
    utilisation: dict[str, Any]
    """Fields of `ModelUtilisation` by name."""
    convention: str
    """Words for the attention that counts."""


@dataclass(frozen=True, slots=True)
class _Speed:
    num_procs: int
    tokens_per_s: float
    recompute: str = "none"
    datatype: str | None = None


def find_training_cost(asked: CostQuestion, model: Model | None = None, system: System | None = None) -> TrainingCost:
    """Return the training run of a question.

    Args:
        asked: the question.
        model: the question's model, if it was loaded before.
        system: the question's system, if it was loaded before.

    Raises `QuestionError`, `engine.economics.DerivedError`, and the errors of loading model and system.
    """
    model = found_model(asked.model) if model is None else model
    system = found_system(asked.system) if system is None else system
    flops = token_flops(model)
    convention = asked.attention or chosen_cost_model(None, system).flop_convention
    speed = _training_speed(asked, model, system, flops.model(convention))
    run = training_run(
        _run_inputs(asked, system),
        tokens_per_s=speed.tokens_per_s,
        num_procs=speed.num_procs,
        parameters=float(parameter_count(model)),
    )
    datatype = _choose_datatype(system, asked.datatype or speed.datatype)
    peak = system.peak_tflops(datatype) * 1e12
    recompute: Any = asked.recompute or speed.recompute
    rate, count = speed.tokens_per_s, float(speed.num_procs)
    used = {
        "mfu": utilisation(flops.model(convention), rate, count, peak),
        "hfu": utilisation(flops.hardware(recompute, convention), rate, count, peak),
        "attention": convention,
        "recompute": recompute,
        "datatype": datatype,
        "peak_flops_per_s": peak,
        "model_flops_per_token": flops.model(convention),
    }
    return TrainingCost(run, used, CONVENTIONS[convention])


def _run_inputs(asked: CostQuestion, system: System) -> RunInputs:
    given = {name: getattr(asked, name) for name in INPUTS}
    facts = system.accelerator
    if facts is None or facts.usd_per_h is None:
        for one, other in PRICES:  # one price is enough where the system has none
            given[other] = given[one] if given[other] is None else given[other]
    return RunInputs.of(system, **given)


def _training_speed(asked: CostQuestion, model: Model, system: System, flops: float) -> _Speed:
    """Return processors and rate. flops: of the model per token."""
    given = [name for name in SPEEDS if getattr(asked, name) is not None]
    if len(given) != 1:
        told = " and ".join(f"`{name}`" for name in given) or "nothing"
        known = ", ".join(f"`{name}`" for name in SPEEDS)
        raise QuestionError(f"The speed comes from {told}; give exactly one of {known}.")
    if asked.execution is not None:
        return _evaluate_execution(asked.execution, asked.num_procs, model, system)
    if asked.num_procs is None:
        raise QuestionError("`num_procs` is missing; give the number of processors.")
    if asked.step_time_s is not None:
        if asked.batch is None:
            raise QuestionError("`step_time_s` needs `batch`, the sequences of a step.")
        return _Speed(asked.num_procs, tokens_per_second(float(asked.batch * model.seq_size), asked.step_time_s))
    if asked.tflops is not None:
        if asked.attention is None:
            raise QuestionError(
                "`tflops` needs `attention`: causal if your program counts without masked products, as Megatron does, "
                "or full."
            )
        rate = tokens_per_second_at(flops, float(asked.num_procs), asked.tflops * 1e12)
        return _Speed(asked.num_procs, rate)
    assert asked.tokens_per_s is not None
    return _Speed(asked.num_procs, asked.tokens_per_s)


def _evaluate_execution(execution: dict[str, Any], procs: int | None, model: Model, system: System) -> _Speed:
    row = engine.evaluate(model, system, pd.DataFrame([execution], dtype=object)).iloc[0]
    if row["status"] != "ok":
        raise QuestionError(f"The execution cannot run: {row['reason_text']}")
    if not row["training"]:
        raise QuestionError("The execution does not train; give one with training on.")
    if procs is not None and procs != int(row["num_procs"]):
        raise QuestionError(
            f"`num_procs` is {procs:,} but the execution has {int(row['num_procs']):,}; leave `num_procs` out."
        )
    return _Speed(
        int(row["num_procs"]),
        float(row["sample_rate"]) * model.tokens_per_sample,
        str(row["activation_recompute"]),
        str(row["datatype"]),
    )


def _choose_datatype(system: System, wanted: str | None) -> str:
    if not wanted:
        return system.closest_datatype("bfloat16", system.matrix)
    if not system.has_rate(wanted):
        raise QuestionError(f"`datatype` is {shown(wanted)}; {system.name} has {', '.join(system.offered_datatypes)}.")
    return wanted


def cost_document(found: TrainingCost) -> dict[str, Any]:
    """Return a training run as JSON has it: inputs, figures, and the units and formulas of both.

    Args:
        found: the training run.
    """
    run = found.run
    document = {
        "procs": run.num_procs,
        "parameters": run.parameters,
        "tokens_per_s": run.tokens_per_s,
        "tokens_per_s_per_proc": run.tokens_per_s_per_proc,
        **{name: getattr(run, name) for name in OUTPUTS},
        "time_parts_s": {name: value for name, value in run.parts._asdict().items() if name != "failures"},
        "usd_per_billion_tokens": run.usd_per_billion,
        "kwh_per_billion_tokens": run.kwh_per_billion,
        "inputs": asdict(run.inputs),
        "units": {name: one.unit for name, one in OUTPUTS.items()} | {name: one.unit for name, one in INPUTS.items()},
        "formulas": {name: one.formula for name, one in OUTPUTS.items()},
        "utilisation": found.utilisation,
    }
    return {name: plain(value) for name, value in document.items()}


def _answer_cost(asked: CostQuestion, context: Context) -> dict[str, Any]:
    return cost_document(find_training_cost(asked))


COST = Verb(
    "cost",
    "Cost of a training run",
    "Says what training so many tokens takes: time with failures and checkpoints, processor-hours, money, energy.",
    CostQuestion,
    CostAnswer,
    _answer_cost,
)
