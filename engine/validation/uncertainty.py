"""Uncertainty of predictions, from errors on runs of sources that had no part in the fit.

A source is a publisher of runs: runs of one source have similar errors, so whole sources are left out of a fit. An
interval comes from runs of the same kind of model, dense or a mixture of experts, on the same generation of processors
in products of the same width; if too few of them were measured, in all widths; then on all generations; if these are
too few as well, there is no interval. Its ends are the quantile of |log(measured / predicted)| that conformal
prediction takes (Vovk et al. 2005), with weights (Tibshirani et al. 2019, arXiv:1904.06019): of n equal weights the
ceil((n + 1) share)-th smallest. A run of a source of n runs weighs n to the power of minus `SOURCE_WEIGHT`.

What an interval holds of runs of a source that had no part in it is measured, by leaving out each of its sources in
turn, and printed next to it (`Interval.held`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.columns import FITS, Fit
from engine.cost_models.calibrated import (
    GENERATIONS,
    OFFLOADS,
    calibrated,
    generation_of,
    generation_words,
    kind_words,
    model_shapes,
)
from engine.cost_models.registry import cost_model_of
from engine.executions.arrays import Floats
from engine.validation.mapping import Mapped
from engine.validation.selection import reported, sources_of
from hardware import GIB, System
from models import Model, datatypes

if TYPE_CHECKING:
    from engine.scenarios.scenario import Scenario

__all__ = [
    "LEAST_ROWS",
    "LEAST_SOURCES",
    "OFFLOADS",
    "SHARE",
    "SHARES",
    "UNSEEN",
    "Interval",
    "adapter_residuals",
    "coverage_of",
    "coverage_table",
    "describe_kind",
    "fine_tuning_interval_of",
    "fine_tuning_residuals",
    "fit_bounds",
    "fit_within",
    "interval",
    "interval_of",
    "interval_of_kind",
    "is_modelled",
    "kinds_of",
    "memory_fits",
    "memory_interval",
    "memory_interval_of",
    "memory_residuals",
    "plain_width",
    "residuals",
]

SHARE = 0.8
"""Share of comparable runs inside the intervals that are shown."""
SHARES = (0.5, SHARE, 0.9)
"""Shares whose intervals are checked against runs of sources left out."""
LEAST_ROWS, LEAST_SOURCES = 15, 2
"""Runs, and sources beside the one that an interval is for, that an interval needs."""
SOURCE_WEIGHT = 0.25
"""Exponent of the weight of a source's runs: 0 counts every run once, 1 every source. With 0, 1/4, 1/2 and 1, 80 %
intervals hold 81, 84, 85 and 89 % of the runs of sources left out, 62, 66, 68 and 72 % if every source counts once, and
79, 82, 84 and 89 % of unseen halves: 1/4 is the largest that keeps runs within five points of the stated share."""
CONDITIONS = (("experts", "generation", "bits"), ("experts", "generation"), ("experts",))
"""Properties that comparable runs share; the first of these with enough runs counts."""
MEMORY_CONDITIONS = (("experts", "generation"), ("experts",), ())
"""The same for memory: bytes are counted in the same way for every model, so runs of any model tell something."""
ADAPTER_CONDITIONS = (("experts",), ())
"""The same for fine-tuning, of which few runs were measured."""
LEAST_TUNED_ROWS = 12
"""Runs that an interval of fine-tuning all weights needs, of which 13 were measured. Source: stated by us."""
LOWEST_SHARE, HIGHEST_SHARE = 0.5, 0.99
"""Least and greatest share of runs that an interval may be asked for. Source: stated by us."""
UNSEEN = "all runs of sources left out"
"""Name of the first group of a table of coverage."""


class Interval(NamedTuple):
    """Factors on a predicted time: true times lie between low and high times it in `share` of comparable runs.

    `rows` is how many runs it rests on, `sources` from how many sources, `described` which they are. `held` is the
    share of runs inside where each source in turn had no part in the interval, every source counted once; not a number
    if there is one source only.
    """

    low: float
    high: float
    rows: int
    sources: int
    described: str
    share: float
    held: float = math.nan

    @property
    def is_weak(self) -> bool:
        """Return True if the interval has too few sources to cover another one: of n and one more, at least 1 / (n + 1)
        is the worst, so that fewer than share / (1 - share) cannot bound so large a share of sources."""
        return self.sources < self.share / (1.0 - self.share) - 1e-9

    @property
    def held_words(self) -> str:
        """A sentence with the share of runs of sources left out that such intervals held."""
        return (
            f"Of sources left out, such intervals held {self.held:.0%}, every source counted once."
            if math.isfinite(self.held)
            else ""
        )

    @property
    def rests_on(self) -> str:
        """The runs in words: "126 measured runs of dense models on Hopper, from 6 sources"."""
        few = ", too few to generalise" if self.is_weak else ""
        return f"{self.rows:,} measured runs of {self.described}, from {self.sources} sources{few}"


@cache
def residuals() -> pd.DataFrame:
    """Returns the errors of runs of sources left out of the fit: `id`, `source`, `generation`, `experts`, `bits` (of
    the factors of products: 16, 8 or 4), `ratio` (measured over predicted)."""
    with files("engine.validation").joinpath("data", "residuals.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@cache
def memory_residuals() -> pd.DataFrame:
    """Returns the errors of predicted memory: `id`, `source`, `generation`, `experts`, `ratio` (measured over
    predicted).

    Bytes are counted, not fitted to these runs; what the driver holds beside tensors is one stated factor.
    """
    with files("engine.validation").joinpath("data", "memory_residuals.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


@cache
def fine_tuning_residuals() -> pd.DataFrame:
    """Returns the errors of steps of fine-tuning, which nothing was fitted to: `id`, `source`, `method` (full or
    lora), `generation`, `experts`, `ratio` (measured over predicted)."""
    with files("engine.validation").joinpath("data", "fine_tuning_residuals.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file)


def adapter_residuals() -> pd.DataFrame:
    """Returns the part of `fine_tuning_residuals` with adapters on frozen weights."""
    table = fine_tuning_residuals()
    return table[table["method"] != "full"].reset_index(drop=True)


def interval(
    *,
    generation: str,
    experts: bool,
    bits: float | None = None,
    share: float = SHARE,
    without: str = "",
    table: pd.DataFrame | None = None,
    conditions: Sequence[tuple[str, ...]] = CONDITIONS,
    least: int = LEAST_ROWS,
) -> Interval | None:
    """Returns an interval for predictions of a kind of run; None where too few runs of the kind were measured.

    Args:
        generation: one of `engine.cost_models.calibrated.physics.inputs.GENERATIONS`.
        experts: whether the model has experts.
        bits: width of the factors of products; runs of any width count where None.
        share: of comparable runs inside the interval, 0.5 to 0.99.
        without: a source whose runs do not count, which a run of that source asks for.
        table: errors to take it from, `residuals` where None.
        conditions: what comparable runs agree on, the first of these that has enough runs.
        least: runs that are enough, of a `table`.

    Raises:
        ValueError: `share` is outside its range.
    """
    if not LOWEST_SHARE <= share <= HIGHEST_SHARE:
        raise ValueError(f"share is {share:g}; it must be between {LOWEST_SHARE} and {HIGHEST_SHARE}")
    wanted = {"generation": generation, "experts": experts} | ({} if bits is None else {"bits": plain_width(bits)})
    if table is None:
        return _interval_of_times(tuple(wanted.items()), share, without, tuple(conditions))
    return _interval_in(table, wanted, share, without, conditions, least)


def plain_width(bits: float) -> float:
    """Return the width of a plain datatype for that of an element with its part of a scale: 16, 8 or 4 [bits].

    Args:
        bits: width of an element, 8.25 for MXFP8 [bits].
    """
    return next((float(width) for width in (16, 8) if bits >= width), 4.0)


@lru_cache(maxsize=256)
def _interval_of_times(
    wanted: tuple[tuple[str, Any], ...], share: float, without: str, conditions: tuple[tuple[str, ...], ...]
) -> Interval | None:
    """`interval` from `residuals`, of which there are few: a page asks for the same beside every time."""
    return _interval_in(residuals(), dict(wanted), share, without, conditions)


def _interval_in(
    table: pd.DataFrame,
    wanted: Mapping[str, Any],
    share: float,
    without: str,
    conditions: Sequence[tuple[str, ...]],
    least: int = LEAST_ROWS,
) -> Interval | None:
    """`interval` from a table of errors; a condition on a column that it lacks, or that nothing is wanted of, counts
    for nothing."""
    if wanted["generation"] not in set(table["generation"]):
        return None
    for names in conditions:
        if not set(names) <= set(wanted) & set(table):
            continue
        agree = (table[[*names]] == pd.Series({name: wanted[name] for name in names})).all(axis=1)
        found = table[(table["source"] != without) & agree]
        errors = np.abs(np.log(found["ratio"].to_numpy(np.float64)))
        source = found["source"].to_numpy(object)
        sources = len(set(source))
        if len(found) < least or sources < LEAST_SOURCES:
            continue
        size = _quantile(errors, source, share)
        if math.isfinite(size):
            factor = math.exp(size)
            described = describe_kind({name: wanted[name] for name in names})
            held = _share_held(errors, source, share)
            return Interval(1.0 / factor, factor, len(found), sources, described, share, held)
    return None


def describe_kind(properties: Mapping[str, Any]) -> str:
    """Return runs of a kind in words: "dense models on Hopper in 8 bits".

    Args:
        properties: values of `experts`, `generation` and `bits` that the runs share; others differ.
    """
    kind = kind_words(properties["experts"]) if "experts" in properties else "any model"
    where = generation_words(properties["generation"]) if "generation" in properties else "any generation"
    return f"{kind} on {where}" + (f" in {properties['bits']:.0f} bits" if "bits" in properties else "")


def _quantile(errors: Floats, source: npt.NDArray[np.object_], share: float) -> float:
    """Return the error that a share of the runs does not exceed, by weight; infinite where there are too few."""
    _, which, sizes = np.unique(source.astype(str), return_inverse=True, return_counts=True)
    weights = sizes[which].astype(np.float64) ** -SOURCE_WEIGHT
    order = np.argsort(errors)
    # The run that the interval is for weighs as much as one of them does on average.
    reached = np.cumsum(weights[order]) / (weights.sum() + weights.mean())
    place = int(np.searchsorted(reached, share - 1e-12))
    return float(errors[order[place]]) if place < len(errors) else math.inf


def _share_held(errors: Floats, source: npt.NDArray[np.object_], share: float) -> float:
    """Return the share of runs inside the intervals of the other sources, every source counted once."""
    each = []
    for name in sorted(set(source)):
        own = source == name
        if own.all():
            return math.nan
        each.append(float(np.mean(errors[own] <= _quantile(errors[~own], source[~own], share))))
    return float(np.mean(each))


def is_modelled(scenario: Scenario) -> bool:
    """Return True if figures are predicted for a generation of processors without measurements.

    Args:
        scenario: of any cost model.
    """
    return cost_model_of(scenario).takes_calibration and not calibrated(scenario.system)


def interval_of(scenario: Scenario, execution: Mapping[Any, Any], share: float = SHARE) -> Interval | None:
    """Returns an interval for the step time of one execution; None where no measured run is comparable.

    That is under `calculon`, which predicts no measurement, where the execution rests on anything that was never
    measured (`engine.cost_models.calibrated.measured`), and where too few runs of its kind were.

    Args:
        scenario: that the execution is of.
        execution: its fields, by name.
        share: of comparable runs inside the interval, 0.5 to 0.99.

    Raises ValueError for a share that `interval` does not take.
    """
    if scenario.not_measured(execution):
        return None
    return interval_of_kind(scenario, share, str(execution.get("datatype", scenario.datatype)))


def interval_of_kind(scenario: Scenario, share: float = SHARE, datatype: str = "") -> Interval | None:
    """Returns an interval for the step times of all executions of a scenario that rest on nothing that was never
    measured, see `interval_of`.

    Args:
        scenario: of any cost model.
        share: of comparable runs inside the interval, 0.5 to 0.99.
        datatype: of the executions; the scenario's where empty.

    Raises ValueError for a share that `interval` does not take.
    """
    # Of a forward pass alone, no run was measured.
    if not cost_model_of(scenario).takes_calibration or is_modelled(scenario) or not scenario.trains:
        return None
    bits = datatypes.named(datatype or scenario.datatype).bits
    experts = bool(model_shapes(scenario.model).experts > 0)
    generation, tuning = generation_of(scenario.system), scenario.model.tuning
    if tuning is not None and tuning.is_frozen:
        found = interval(
            generation=generation,
            experts=experts,
            share=share,
            table=adapter_residuals(),
            conditions=ADAPTER_CONDITIONS,
        )
        return None if found is None else found._replace(described=f"adapters, {found.described}")
    return interval(generation=generation, experts=experts, bits=bits, share=share)


def fine_tuning_interval_of(scenario: Scenario, execution: Mapping[Any, Any], share: float = SHARE) -> Interval | None:
    """Return an interval for the step time of one execution that fine-tunes, from measured runs of fine-tuning.

    None as for `interval_of`. Steps that fine-tune all weights have larger errors than pre-training.

    Args:
        scenario: that the execution is of.
        execution: its fields, by name.
        share: of comparable runs inside the interval, 0.5 to 0.99.

    Raises ValueError for a share that `interval` does not take.
    """
    usual = interval_of(scenario, execution, share)
    tuning = scenario.model.tuning
    if usual is None or (tuning is not None and tuning.is_frozen):
        return usual
    table = fine_tuning_residuals()
    found = interval(
        generation=generation_of(scenario.system),
        experts=bool(model_shapes(scenario.model).experts > 0),
        share=share,
        table=table[table["method"] == "full"],
        conditions=ADAPTER_CONDITIONS,
        least=LEAST_TUNED_ROWS,
    )
    return None if found is None else found._replace(described=f"fine-tuning all weights, {found.described}")


def memory_interval_of(scenario: Scenario, share: float = SHARE) -> Interval | None:
    """Returns an interval for the predicted memory of a GPU: factors on it, as `interval_of` has them for the time.

    None under a cost model that predicts no measurement, and on generations without measured runs.

    Args:
        scenario: of any cost model.
        share: of comparable runs inside the interval, 0.5 to 0.99.

    Raises ValueError for a share that `interval` does not take.
    """
    return (
        memory_interval(scenario.model, scenario.system, share) if cost_model_of(scenario).takes_calibration else None
    )


def memory_interval(model: Model, system: System, share: float = SHARE) -> Interval | None:
    """Return the interval of `memory_interval_of` for the calibrated cost model.

    Args:
        model: the model that is trained.
        system: the system that it runs on.
        share: of comparable runs inside the interval, 0.5 to 0.99.

    Raises ValueError for a share that `interval` does not take.
    """
    return _usual_interval(generation_of(system), bool(model_shapes(model).experts > 0), share, memory=True)


def memory_fits(mapped: Mapped, predicted_gib: npt.NDArray[np.float64]) -> npt.NDArray[np.object_]:
    """Return whether the predicted memory of runs fits into their accelerators [rows]: words of `Fit`, "" without one.

    Args:
        mapped: runs as the cost model reads them, with why others cannot be read [rows].
        predicted_gib: memory of tensors on the fullest accelerator [GiB] [rows]; not a number without a prediction.
    """
    capacity = np.broadcast_to(mapped.case.accelerator.capacity / GIB, len(mapped.table))
    kinds, found = kinds_of(mapped), np.full(len(mapped.table), "", object)
    for row in np.flatnonzero(np.isfinite(predicted_gib)).tolist():
        error = _usual_interval(str(kinds["generation"].iat[row]), bool(kinds["experts"].iat[row]), SHARE, memory=True)
        found[row] = fit_within(float(predicted_gib[row]), float(capacity[row]), error)
    return found


def fit_within(needed: float, capacity: float, error: Interval | None) -> Fit:
    """Return whether predicted memory fits, given how far it may be off.

    Args:
        needed: predicted memory, in any unit.
        capacity: in the same unit.
        error: factors on predicted memory; None where its error is not known.
    """
    return FITS[sum(needed > bound for bound in fit_bounds(capacity, error))]


def fit_bounds(capacity: float, error: Interval | None) -> tuple[float, float, float]:
    """Return the predicted memory up to which an execution fits, may not fit and may fit, in the unit of the capacity.

    Args:
        capacity: in any unit.
        error: factors on predicted memory; None where its error is not known.
    """
    low, high = (1.0, 1.0) if error is None else (error.low, error.high)
    return min(capacity, capacity / high), capacity, max(capacity, capacity / low)


@lru_cache(256)
def _usual_interval(generation: str, experts: bool, share: float, *, memory: bool = False) -> Interval | None:
    """Returns the interval from the package's own errors, which are the same for every execution."""
    table, conditions = (memory_residuals(), MEMORY_CONDITIONS) if memory else (None, CONDITIONS)
    return interval(generation=generation, experts=experts, share=share, table=table, conditions=conditions)


def kinds_of(mapped: Mapped) -> pd.DataFrame:
    """Returns what intervals are chosen by: `source`, `generation`, `experts` and `bits` of every run.

    Args:
        mapped: runs as the cost model reads them, with why others cannot be read [rows].
    """
    case = mapped.case
    return pd.DataFrame(
        {
            "source": sources_of(mapped.table),
            "generation": np.array(GENERATIONS, object)[case.accelerator.generation.astype(int)],
            "experts": case.model.experts > 0,
            "bits": [plain_width(bits) for bits in case.layout.linear_bits],
        }
    )


def coverage_of(mapped: Mapped, predictions: pd.DataFrame) -> pd.DataFrame:
    """Returns `coverage_table` for runs that had no part in the fit, with the package's intervals.

    Runs count as errors are reported.

    Args:
        mapped: runs as the cost model reads them, with why others cannot be read [rows].
        predictions: what `engine.validation.validate` returned for them.
    """
    kinds = kinds_of(mapped).assign(ratio=1.0 / (1.0 + predictions["error"].to_numpy(np.float64)))
    rows = reported(mapped.table) & np.isfinite(kinds["ratio"].to_numpy(np.float64))
    kinds = kinds[rows].reset_index(drop=True)
    return coverage_table(kinds, {"all runs": np.ones(len(kinds), bool)}, lambda _: residuals())


def coverage_table(
    kinds: pd.DataFrame, groups: Mapping[str, np.ndarray[Any, Any]], errors_without: Callable[[str], pd.DataFrame]
) -> pd.DataFrame:
    """Returns how many measured times lie within their intervals.

    Args:
        kinds: `source`, `generation`, `experts`, `ratio` (measured over predicted) and perhaps `bits` of the runs.
        groups: names of groups and which runs are in them [rows].
        errors_without: the errors that intervals of runs of a source are taken from.

    Returns:
        A row per group: `runs`, `sources`, `none` (runs without interval), `covered_50` and so on for `SHARES` (share
        of the others inside, in percent), `sources_50` and so on (mean over sources of the share inside).
    """
    inside = {share: np.full(len(kinds), np.nan) for share in SHARES}
    for source, part in kinds.groupby("source", sort=False):
        table = errors_without(str(source))
        for (generation, experts, bits), rows in part.assign(bits=part.get("bits", 0.0)).groupby(
            ["generation", "experts", "bits"]
        ):
            for share in SHARES:
                found = interval(
                    generation=str(generation),
                    experts=bool(experts),
                    bits=float(str(bits)) or None,
                    share=share,
                    without=str(source),
                    table=table,
                )
                if found is not None:
                    inside[share][kinds.index.get_indexer(rows.index)] = rows["ratio"].between(found.low, found.high)
    records: list[dict[str, Any]] = []
    for name, chosen in groups.items():
        if not chosen.any():
            continue
        names = kinds["source"][chosen].to_numpy(object)
        row: dict[str, Any] = {"name": name, "runs": int(chosen.sum()), "sources": len(set(names))}
        row["none"] = int(np.isnan(inside[SHARE][chosen]).sum())
        for share in SHARES:
            percent = 100.0 * inside[share][chosen]
            by_source = [np.nanmean(percent[names == each]) for each in set(names[np.isfinite(percent)])]
            row[f"covered_{100 * share:.0f}"] = np.nanmean(percent) if by_source else math.nan
            row[f"sources_{100 * share:.0f}"] = np.mean(by_source) if by_source else math.nan
        records.append(row)
    return pd.DataFrame(records)
