"""Verb about a throughput: the prediction, a person's own measurement, and the measured runs nearest to both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from engine.columns import MFU_OF, TFLOPS_OF, fields_of
from engine.columns.percentages import format_percent
from engine.economics import derived_of
from engine.executions.execution_names import execution_name
from engine.launch import StandingChange, evaluable
from engine.launch.improvement_steps import NOT_COMPARED
from engine.questions.bounds import Context
from engine.questions.documents.nearest_runs import NormalQuestion
from engine.questions.evaluation_settings import load_evaluation_setting
from engine.questions.plain import plain
from engine.questions.verb import Document, QuestionError, Verb
from engine.scenarios.scenario import Scenario
from engine.validation.explanations import find_explanations
from engine.validation.model_flops import flops_of_runs
from engine.validation.nearest import WEIGHTS, NearestRuns, TrainingSetting, find_nearest_runs
from engine.validation.predict import validate_by
from engine.validation.source_links import find_link
from engine.validation.uncertainty import Interval, interval_of, memory_interval_of
from hardware import GIB
from models.datatypes import explain_refusal
from models.token_flops import Convention

__all__ = ["MEASURED", "NORMAL", "NOT_TRAINING", "MeasuredRate", "NormalThroughput", "find_normal", "normal_throughput"]

_HBM: Final = "proc_mem_tier1_cap_req"
MEASURED: Final = ("step_time_s", "tokens_per_s", "tflops")
"""Fields of a question, of which at most one gives a measured figure."""

Verdict = Literal["as expected", "slower than expected", "faster than expected", "no interval"]
MemoryVerdict = Literal["as expected", "more than expected", "less than expected", "no interval"]
_WORTH_EXPLAINING: Final = 0.02
"""Difference from the prediction from which explanations are looked for; runs of one setting differ by as much. Source:
stated by us."""


class SettingChange(Document):
    """A setting that may be another one than the execution states."""

    field: str
    old: bool | int | float | str | None
    new: bool | int | float | str | None


class ExplanationRow(Document):
    """A change of one setting that would explain a measured figure."""

    changes: list[SettingChange]
    words: str = Field(description="The changes in words.")
    predicted: float = Field(description="Prediction with them: step time [s], or memory [GiB].")
    difference: float = Field(description="Measured figure over this prediction, less 1.")


class ThroughputFigures(Document):
    """A throughput in all units; both conventions of attention by name."""

    step_time_s: float
    tokens_per_s: float = Field(description="All GPUs together.")
    tokens_per_s_per_gpu: float
    tflops_per_gpu_causal: float = Field(description="Model FLOP/s [TFLOP/s], without masked products.")
    tflops_per_gpu_full: float = Field(description="Model FLOP/s [TFLOP/s], attention in full.")
    mfu_causal: float
    mfu_full: float


class PredictedThroughput(ThroughputFigures):
    """A predicted throughput with its interval."""

    low_s: float | None = Field(description="Least step time of the interval [s]; null without comparable runs.")
    high_s: float | None
    share: float | None = Field(description="Share of comparable runs inside the interval.")
    rests_on: str = Field(description="Runs that the interval comes from; empty without one.")


class MeasuredThroughput(ThroughputFigures):
    """A person's own measurement next to the prediction."""

    difference: float | None = Field(description="Measured over predicted step time, less 1; positive is slower.")
    verdict: Verdict
    words: str = Field(description="The verdict in a sentence.")
    explanations: list[ExplanationRow] = Field(
        description="Single changes of a setting that explain half of the difference or more, the nearest first."
    )


class PredictedMemory(Document):
    """Predicted memory of the fullest GPU with its interval."""

    gib: float
    low_gib: float | None = Field(description="Null without comparable runs.")
    high_gib: float | None
    share: float | None = Field(description="Share of comparable runs inside the interval.")
    capacity_gib: float = Field(description="Memory that a GPU has.")


class MeasuredMemory(Document):
    """A person's own measurement of memory next to the prediction."""

    gib: float
    difference: float = Field(description="Measured over predicted memory, less 1.")
    verdict: MemoryVerdict
    words: str = Field(description="The verdict in a sentence.")
    explanations: list[ExplanationRow]


class NearestRun(Document):
    """A measured run with its source, its prediction and its distance from the execution."""

    id: str
    source: str
    place: str = Field(description="Where the source has it, in words.")
    link: str | None = Field(description="Address of a paper, or of a file at a commit; null where there is none.")
    date: str
    framework: str
    model: str
    kind: Literal["dense", "experts", "hybrid"]
    hardware: str
    num_procs: float | None
    layout: str
    datatype: str
    recompute: str = Field(description="In the words of the source; empty where it says nothing.")
    seq_size: float | None
    batch_size: float | None
    microbatch_size: float | None
    measured_step_time_s: float | None
    measured_tokens_per_s_per_gpu: float | None
    measured_tflops_per_gpu_causal: float | None
    measured_tflops_per_gpu_full: float | None
    predicted_step_time_s: float | None
    difference: float | None = Field(description="Measured over predicted step time, less 1; positive is slower.")
    reason: str = Field(description="Why there is no prediction; empty where there is one.")
    distance: float
    parts: dict[str, float] = Field(description="Contribution of each part to the distance.")


class NormalAnswer(Document):
    """Throughput of an execution: predicted, measured, and measured of the nearest runs."""

    model: str
    system: str
    cost_model: str
    calibration: str | None
    attention: Literal["causal", "full"] = Field(description="Convention that pages and commands show first.")
    execution: str = Field(description="Degrees of parallelism.")
    runs: bool
    reason_text: str = Field(description="Why it does not run; empty where it does.")
    predicted: PredictedThroughput | None = Field(description="Null where it does not run.")
    measured: MeasuredThroughput | None = Field(description="Null unless a figure was given.")
    memory: PredictedMemory | None = Field(description="Null where it does not run.")
    measured_memory: MeasuredMemory | None = Field(
        description="Null unless memory was given, or where it does not run."
    )
    nearest: list[NearestRun]
    weights: dict[str, float] = Field(description="Weight of each part of the distance.")
    note: str


NOT_TRAINING: Final = "The measured runs are of training; this execution has only forward passes."

NOTE: Final = (
    "The calibration was fitted to most of these runs, so unseen runs differ more. The interval comes from runs of "
    "sources left out of the fit."
)


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A person's measured figure: one of `MEASURED`, its value, and how TFLOP/s count attention."""

    field: str
    value: float
    convention: Convention | None = None

    def samples_per_s(self, scenario: Scenario, batch_size: int) -> float:
        """Return the throughput that it means [samples/s].

        Args:
            scenario: that was measured.
            batch_size: sequences of a step.
        """
        if self.field == "step_time_s":
            return batch_size / self.value
        if self.field == "tokens_per_s":
            return self.value / scenario.model.seq_size
        assert self.convention is not None
        return self.value * 1e12 / derived_of(scenario)[TFLOPS_OF[self.convention]].factor


@dataclass(frozen=True, slots=True)
class NormalThroughput:
    """Throughput of an execution with the measured runs nearest to it."""

    scenario: Scenario
    row: Mapping[str, Any]
    """The execution: fields, outcome and statistics by name."""
    predicted: dict[str, Any] | None
    """Fields of `PredictedThroughput`."""
    measured: dict[str, Any] | None
    """Fields of `MeasuredThroughput`."""
    nearest: list[dict[str, Any]]
    """Fields of `NearestRun`."""
    memory: dict[str, Any] | None = None
    """Fields of `PredictedMemory`."""
    measured_memory: dict[str, Any] | None = None
    """Fields of `MeasuredMemory`."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        scenario = self.scenario
        return {
            "model": scenario.model.name,
            "system": scenario.system.name,
            "cost_model": scenario.cost_model,
            "calibration": scenario.calibration_name,
            "attention": scenario.flop_convention,
            "execution": execution_name(self.row),
            "runs": self.predicted is not None,
            "reason_text": str(self.row["reason_text"] or ""),
            "predicted": self.predicted,
            "measured": self.measured,
            "memory": self.memory,
            "measured_memory": self.measured_memory,
            "nearest": self.nearest,
            "weights": dict(WEIGHTS),
            "note": NOTE,
        }


def normal_throughput(
    scenario: Scenario,
    row: Mapping[str, Any],
    *,
    measured: MeasuredRate | None = None,
    memory_gib: float | None = None,
    nearest: int = 5,
) -> NormalThroughput:
    """Return an execution's throughput and memory, measurements of them, and the measured runs nearest to it.

    Args:
        scenario: that the execution is of.
        row: the execution, evaluated: fields, outcome and statistics by name.
        measured: a person's own figure.
        memory_gib: a person's own measurement of the memory of the fullest GPU [GiB].
        nearest: how many runs to return at most.

    Raises `QuestionError` for an execution without backward pass, and for a measured figure beyond the peak of the
    processors, or the memory of one.
    """
    if not row["training"]:
        raise QuestionError(NOT_TRAINING)
    runs = row["status"] == "ok"
    batch = int(row["batch_size"])
    expected = float(row["total_time"]) if runs else math.nan
    found = interval_of(scenario, row) if runs else None
    predicted = None
    if runs:
        predicted = {
            **_throughput_figures(scenario, batch, expected),
            "low_s": None if found is None else expected * found.low,
            "high_s": None if found is None else expected * found.high,
            "share": None if found is None else found.share,
            "rests_on": "" if found is None else found.rests_on,
        }
    own: dict[str, Any] | None = None
    if measured is not None:
        step = batch / measured.samples_per_s(scenario, batch)
        own = dict(_throughput_figures(scenario, batch, step))
        if own["mfu_causal"] > 1.0:
            raise QuestionError(
                f"`{measured.field}` is {measured.value:g}, which means {own['mfu_causal']:,.0%} of the GPUs' peak; "
                "check its unit and the number of GPUs."
            )
        own |= {
            "difference": step / expected - 1.0 if runs else None,
            "verdict": _judge(step, expected, found) if runs else "no interval",
            "words": "",
            "explanations": _explain(scenario, row, "total_time", step, 1.0) if runs else [],
        }
        if predicted is not None:
            own["words"] = _verdict_words(step, expected, "s a step", "slower", "faster", predicted)
    setting = TrainingSetting.of(scenario.model, scenario.system, row)
    runs_near = _list_runs(find_nearest_runs(setting, nearest), scenario)
    memory = _predict_memory(scenario, row) if runs else None
    own_memory = None
    if memory_gib is not None:
        capacity = scenario.system.mem1.capacity_gib
        if memory_gib > capacity:
            raise QuestionError(
                f"`peak_memory_gib` is {memory_gib:g}, but a GPU has {capacity:.4g} GiB; give GiB of one GPU."
            )
        own_memory = None if memory is None else _judge_memory(scenario, row, memory_gib, memory)
    return NormalThroughput(scenario, row, predicted, own, runs_near, memory, own_memory)


def _predict_memory(scenario: Scenario, row: Mapping[str, Any]) -> dict[str, Any]:
    gib, found = float(row[_HBM]) / GIB, memory_interval_of(scenario)
    return {
        "gib": gib,
        "low_gib": None if found is None else gib * found.low,
        "high_gib": None if found is None else gib * found.high,
        "share": None if found is None else found.share,
        "capacity_gib": scenario.system.mem1.capacity_gib,
    }


def _judge_memory(
    scenario: Scenario, row: Mapping[str, Any], measured: float, memory: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the measured memory [GiB] next to the prediction."""
    verdict: MemoryVerdict = "as expected"
    if memory["low_gib"] is None:
        verdict = "no interval"
    elif measured > memory["high_gib"]:
        verdict = "more than expected"
    elif measured < memory["low_gib"]:
        verdict = "less than expected"
    span = {"low_s": memory["low_gib"], "high_s": memory["high_gib"], "share": memory["share"]}
    return {
        "gib": measured,
        "difference": measured / memory["gib"] - 1.0,
        "verdict": verdict,
        "words": _verdict_words(measured, memory["gib"], "GiB", "more", "less", span),
        "explanations": _explain(scenario, row, _HBM, measured * GIB, GIB),
    }


def _verdict_words(
    measured: float, predicted: float, unit: str, above: str, below: str, span: Mapping[str, Any]
) -> str:
    """Return a measurement next to its prediction, in a sentence.

    span: interval of the prediction, `low_s` and `high_s`, and its `share` of comparable runs.
    """
    far = format_percent(abs(measured / predicted - 1.0))
    than = f"{far} {above if measured > predicted else below} than the predicted {_digits(predicted)}"
    if span["low_s"] is None:
        return f"Measured {_digits(measured)} {unit}: {than}; too few comparable runs for an error."
    inside = "inside" if span["low_s"] <= measured <= span["high_s"] else "outside"
    return (
        f"Measured {_digits(measured)} {unit}: {than}, {inside} the error ({_digits(span['low_s'])} to "
        f"{_digits(span['high_s'])} for {100 * span['share']:.0f} % of comparable runs)."
    )


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"


def _explain(
    scenario: Scenario, row: Mapping[str, Any], statistic: str, measured: float, unit: float
) -> list[dict[str, Any]]:
    """Return the explanations of a measured figure; predictions are divided by the unit."""
    if abs(measured / float(row[statistic]) - 1.0) < _WORTH_EXPLAINING:
        return []
    return [
        {
            "changes": [{"field": name, "old": old, "new": new} for name, (old, new) in each.changes.items()],
            "words": ", ".join(
                str(StandingChange(name, old, new))
                for name, (old, new) in each.changes.items()
                if name not in NOT_COMPARED
            ),
            "predicted": each.predicted / unit,
            "difference": each.difference,
        }
        for each in find_explanations(scenario, row, statistic, measured)
    ]


def _judge(step: float, expected: float, found: Interval | None) -> Verdict:
    if found is None:
        return "no interval"
    if step > expected * found.high:
        return "slower than expected"
    return "faster than expected" if step < expected * found.low else "as expected"


def _throughput_figures(scenario: Scenario, batch_size: int, step: float) -> dict[str, float]:
    rate, known = np.array(batch_size / step), derived_of(scenario)

    def value(name: str) -> float:
        return float(known[name].of(rate))

    return {
        "step_time_s": step,
        "tokens_per_s": value("tokens"),
        "tokens_per_s_per_gpu": value("tokens_per_gpu"),
        "tflops_per_gpu_causal": value(TFLOPS_OF["causal"]) / 1e12,
        "tflops_per_gpu_full": value(TFLOPS_OF["full"]) / 1e12,
        "mfu_causal": value(MFU_OF["causal"]),
        "mfu_full": value(MFU_OF["full"]),
    }


def _list_runs(found: NearestRuns, scenario: Scenario) -> list[dict[str, Any]]:
    """Return the nearest runs with their predictions: by the scenario's calibration, or the library's."""
    table = found.runs.table
    predictions = validate_by(found.runs, scenario.calibration)
    flops = flops_of_runs(table)
    listed = []
    for at, (run, told) in enumerate(zip(table.to_dict("records"), predictions.to_dict("records"), strict=True)):
        step = run["step_time_s"]
        rate = run["tokens_per_s_per_gpu"]
        if math.isnan(rate):
            rate = run["gbs"] * run["seq_len"] / run["num_gpus"] / step
        if math.isnan(step):
            step = run["gbs"] * run["seq_len"] / run["num_gpus"] / rate
        predicted, work = told["predicted_step_time_s"], flops[at]
        place = run.get("source_loc")
        place = str(place) if isinstance(place, str) and place else str(run["source"])
        degrees = {"tensor_par": "tp", "pipeline_par": "pp", "data_par": "dp", "context_par": "cp", "expert_par": "ep"}
        listed.append(
            {
                "id": run["id"],
                "source": run["source"],
                "place": place,
                "link": find_link(place),
                "date": run["date"],
                "framework": run["framework"],
                "model": run["model"] or _size_in_words(run),
                "kind": found.kinds[at],
                "hardware": run["hardware"],
                "num_procs": run["num_gpus"],
                "layout": execution_name({name: run[column] for name, column in degrees.items()}),
                "datatype": run["dtype"],
                "recompute": run["recompute"],
                "seq_size": run["seq_len"],
                "batch_size": run["gbs"],
                "microbatch_size": run["mbs"],
                "measured_step_time_s": step,
                "measured_tokens_per_s_per_gpu": rate,
                "measured_tflops_per_gpu_causal": None if work is None else rate * work.model("causal") / 1e12,
                "measured_tflops_per_gpu_full": None if work is None else rate * work.model("full") / 1e12,
                "predicted_step_time_s": predicted,
                "difference": step / predicted - 1.0,
                "reason": told["reason_text"],
                "distance": float(found.distances[at]),
                "parts": found.parts.iloc[at].to_dict(),
            }
        )
    return [dict(plain(each)) for each in listed]


def _size_in_words(run: Mapping[Any, Any]) -> str:
    return f"{run['layers']:g} layers of {run['hidden']:g}"


def find_normal(asked: NormalQuestion) -> NormalThroughput:
    """Return the answer to a question as objects.

    Args:
        asked: the question.

    Raises `QuestionError`, the errors of loading model and system, and `engine.launch.LaunchError` for an incomplete
    execution.
    """
    setting = load_evaluation_setting(asked)
    measured = _measured_rate(asked)
    fields = evaluable(asked.execution)
    if not setting.system.has_rate(fields["datatype"]):
        raise QuestionError(explain_refusal(fields["datatype"], setting.system.offered_datatypes, setting.system.name))
    scenario = Scenario.of(
        setting.model,
        setting.system,
        num_procs=fields["num_procs"],
        max_batch_size=fields["batch_size"],
        datatype=fields["datatype"],
        cost_model=setting.cost_model.name,
        calibration=setting.calibration,
        attention=asked.attention,
    )
    names = [column.name for column in fields_of(scenario.cost_model) if column.name in fields]
    (row,) = scenario.evaluate(pd.DataFrame([{name: fields[name] for name in names}])).to_dict("records")
    return normal_throughput(
        scenario,
        {str(name): value for name, value in row.items()},
        measured=measured,
        memory_gib=asked.peak_memory_gib,
        nearest=asked.nearest,
    )


def _measured_rate(asked: NormalQuestion) -> MeasuredRate | None:
    given = [name for name in MEASURED if getattr(asked, name) is not None]
    if not given:
        return None
    if len(given) > 1:
        told = " and ".join(f"`{name}`" for name in given)
        raise QuestionError(f"The measured figure comes from {told}; give one of them.")
    if given == ["tflops"] and asked.attention is None:
        raise QuestionError(
            "`tflops` needs `attention`: causal if your program counts without masked products, as Megatron does, "
            "or full."
        )
    return MeasuredRate(given[0], getattr(asked, given[0]), asked.attention)


def _answer_normal(asked: NormalQuestion, context: Context) -> dict[str, Any]:
    document: dict[str, Any] = plain(find_normal(asked).document())
    return document


NORMAL = Verb(
    "normal",
    "Is a throughput normal?",
    "Lists the measured runs nearest to an execution, each with measurement, prediction and source, and says whether a "
    "measured step time, tokens/s, TFLOP/s or peak of memory is as expected, and which setting would explain it.",
    NormalQuestion,
    NormalAnswer,
    _answer_normal,
)
