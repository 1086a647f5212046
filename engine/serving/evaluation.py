"""Figures of a table of deployments, one row each, with the reason where one cannot run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from engine.cost_models.calibrated import library_calibration, model_shapes, parameters_of
from engine.executions.field_values import quoted
from engine.serving.assumptions import Assumptions
from engine.serving.checks import limit_reasons, reason_text, shape_reasons
from engine.serving.columns import FIELDS, FIGURES
from engine.serving.constants import library_constants
from engine.serving.deployments import WORDS, Deployments, deployments_of, frame_of
from engine.serving.factors import EngineFactors
from engine.serving.figures import ServingSubject, figures, grouped, host_bytes
from engine.serving.reasons import FITS, REASONS, code_of, number_of
from hardware import Calibration, SystemLike, system_of
from models import ModelLike, model_of
from models.documents import shown

__all__ = ["WorkloadError", "evaluate", "positive", "subject_of"]

MEMORY_FIGURES = (
    "memory_total",
    "memory_weights",
    "memory_kv_cache",
    "memory_activations",
    "memory_reserve",
    "memory_capacity",
    "largest_batch",
    "kv_bytes_per_token",
)
"""Figures that a deployment that does not fit has too."""


class WorkloadError(ValueError):
    """A length, a limit or a price makes no sense; the message is one sentence."""


def subject_of(
    model: ModelLike,
    system: SystemLike,
    *,
    price: float | None = None,
    calibration: Calibration | None = None,
    assumptions: Assumptions | None = None,
    requests_per_slot: float | None = None,
    factors: EngineFactors | None = None,
) -> ServingSubject:
    """Returns the subject of an evaluation: model, system, price and assumptions. The default price is the middle of
    the system's recorded prices.

    Args:
        model: name, path or model itself.
        system: name, path or system itself.
        price: of a processor [USD/h]; where None, the middle of the system's recorded prices, or not a number.
        calibration: whose parameters count; the library's where None.
        assumptions: about memory and batches; the usual ones where None.
        requests_per_slot: of a benchmark's burst; None for a steady load.
        factors: on the latencies of engines; none where None.

    Raises `WorkloadError` for an invalid price or an invalid number of requests, and as `model_of` and `system_of` do.
    """
    found = system_of(system)
    if price is None:
        known = None if found.accelerator is None else found.accelerator.usd_per_h
        price = math.nan if known is None else (known[0] + known[1]) / 2.0
    elif isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price <= 1e6:
        raise WorkloadError(f"price is {shown(price)}; it must be from 0 to 1,000,000 USD per processor and hour.")
    if requests_per_slot is not None and (
        isinstance(requests_per_slot, bool)
        or not isinstance(requests_per_slot, int | float)
        or not 1 <= requests_per_slot <= 1e6
    ):
        raise WorkloadError(
            f"requests_per_slot is {shown(requests_per_slot)}; it must be from 1 to 1,000,000 requests, or None for a "
            "steady load."
        )
    if assumptions is not None and assumptions.host_hit_share:
        there, wanted = found.mem2.capacity_gib, assumptions.host_cache_gib or 0.0
        if not there:
            raise WorkloadError(f"{found.title or found.name} has no host memory; host_hit_share must be 0.")
        if wanted > there:
            raise WorkloadError(
                f"host_cache_gib is {wanted:g}; {found.title or found.name} has {there:g} GiB of host memory per GPU."
            )
    network = model_of(model)
    if assumptions is not None and assumptions.draft_model is not None:
        words = [int(model_shapes(each).vocabulary) for each in (network, assumptions.draft_model)]
        if words[0] != words[1]:
            raise WorkloadError(
                f"The draft model {assumptions.draft_model.name} has {words[1]:,} tokens in its vocabulary; it must "
                f"have the {words[0]:,} of {network.name}."
            )
    p = parameters_of(calibration or library_calibration())
    return ServingSubject(
        network,
        found,
        p,
        assumptions or Assumptions(),
        float(price),
        library_constants(),
        requests_per_slot,
        factors=factors,
    )


def positive(name: str, value: float | None) -> float | None:
    """Returns a limit [s], None for none.

    Args:
        name: of the limit, for messages.
        value: a number above 0 and at most 1,000,000 [s]; None for none.

    Raises `WorkloadError` for any other value.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        raise WorkloadError(f"{name} is {shown(value)}; it must be above 0 and at most 1,000,000 seconds.")
    return float(value)


def evaluate(
    model: ModelLike,
    system: SystemLike,
    table: pd.DataFrame | Mapping[str, Any],
    *,
    time_to_first_token: float | None = None,
    time_per_output_token: float | None = None,
    price: float | None = None,
    calibration: Calibration | None = None,
    assumptions: Assumptions | None = None,
    requests_per_slot: float | None = None,
    factors: EngineFactors | None = None,
) -> pd.DataFrame:
    """Evaluates deployments of a model on a system, with constants fitted to measured kernels and servers.

    Args:
        model, system: name, path or object.
        table: one deployment per row: tensor_par, pipeline_par, batch, prompt, output; optional expert_par, replicas,
            weight_bits, kv_bits, attention_bits, compute_bits, launch, engine. A mapping has columns of one length, or
            single values for all rows.
        time_to_first_token, time_per_output_token: limits [s].
        price: of a processor [USD per hour].
        calibration, assumptions: the library's where left out.
        requests_per_slot: requests that a benchmark sends per request in flight, all at once at first, whose burst is
            part of its mean time to the first token; None for a steady load.
        factors: on the latencies of engines, measured on one's own servers; none where None.

    Returns:
        The fields, status, reason and reason_text, and every figure of `engine.serving.columns`, by row. Deployments
        that do not fit have only their memory, invalid ones nothing.

    Raises:
        DeploymentTableError: not a table, columns of different length, a missing or repeated column, or a value that
            is not a whole number (for launch and engine, a word); the message names column and row.
        WorkloadError: a limit or the price is invalid.
    """
    limits = (
        positive("time_to_first_token", time_to_first_token),
        positive("time_per_output_token", time_per_output_token),
    )
    subject = subject_of(
        model,
        system,
        price=price,
        calibration=calibration,
        assumptions=assumptions,
        requests_per_slot=requests_per_slot,
        factors=factors,
    )
    frame = frame_of(table)
    d = deployments_of(frame)
    reason = shape_reasons(subject, d)
    values = {column.name: np.full(len(d), np.nan) for column in FIGURES}
    rows = np.flatnonzero(reason == FITS)
    for index in grouped(d.take(rows)):
        part = rows[index]
        found = figures(subject, d.take(part))
        over = found["memory_total"] > subject.accelerator.capacity
        late = limit_reasons(found["time_to_first_token"], found["time_per_output_token"], *limits)
        if subject.host_share:
            beyond = d.take(part).batch * host_bytes(subject, d.take(part)) > subject.host_capacity
            late, over = np.where(beyond & ~over, number_of("host_memory"), late), over | beyond
        reason[part] = np.where(over & (late != number_of("host_memory")), number_of("memory"), late)
        for name, value in found.items():
            values[name][part] = value if name in MEMORY_FIGURES else np.where(over, np.nan, value)
    words = {name: _words_of(name, frame, d) for name in WORDS}
    return _build_result_table(subject, d, words, reason, values, limits)


def _words_of(name: str, frame: pd.DataFrame, d: Deployments) -> list[str]:
    """The words of a field as they were given; nothing is computed for unknown ones, but their reason names them."""
    given = [quoted(word)[1:-1] for word in frame[name]] if name in frame else [""] * len(d)
    places = getattr(d, name).tolist()
    return [WORDS[name][int(n)] if n >= 0 else word for n, word in zip(places, given, strict=True)]


def _build_result_table(
    subject: ServingSubject,
    d: Deployments,
    words: Mapping[str, list[str]],
    reason: Any,
    values: Mapping[str, Any],
    limits: tuple[float | None, float | None],
) -> pd.DataFrame:
    columns: dict[str, Any] = {
        column.name: getattr(d, column.name).astype(np.int64) for column in FIELDS if column.dtype == "int64"
    }
    columns = {column.name: (columns | dict(words))[column.name] for column in FIELDS}
    numbers = reason.tolist()
    columns["status"] = ["ok" if number == FITS else REASONS[number - 1].status for number in numbers]
    columns["reason"] = [code_of(number) for number in numbers]
    frame = pd.DataFrame({**columns, "reason_text": "", **values})
    texts = [
        reason_text(subject, number, {str(k): v for k, v in frame.iloc[row].items()}, *limits) if number else ""
        for row, number in enumerate(numbers)
    ]
    frame["reason_text"] = pd.Series(texts, dtype=frame["reason"].dtype, index=frame.index)
    return frame
