"""The calibration that samples determine: each parameter the formula of the calibrated model turned round.

What no sample determines keeps its value in the library's calibration, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from pydantic import ValidationError

from engine.cost_models.calibrated import (
    GENERATIONS,
    SUSTAINED,
    Accelerators,
    Parameters,
    accelerator_of,
    library_calibration,
    parameters_of,
    power_factor,
)
from engine.executions.arrays import Floats
from engine.measure.fits import (
    ProductFit,
    attention_seconds,
    attention_shares,
    block_kernels,
    exchange_seconds,
    fit_exchanges,
    fit_products,
    product_seconds,
)
from engine.measure.provenance import of_device, rate_text, spread_text
from engine.measure.samples import Attention, LaunchSample, Samples, SampleTiming
from hardware import CalibratedValue, Calibration, FitError, System

__all__ = ["measured_calibration"]

DOUBTFUL: Final = 15.0
"""Mean deviation of timings from the formula [%] from which a note warns. Source: stated by us."""
LONG_TRANSFER: Final = 0.4
"""Transfers of at least this part of the largest [bytes] determine the memory's bandwidth. Source: stated by us."""
LONG_ATTENTION: Final = 0.1
"""Attention of at least this part of the most scores determines the rate inside it. Source: stated by us."""


@dataclass
class _Found:
    """Measured parameters, in the order in which the formulas need them."""

    p: Parameters
    system: System
    samples: Samples
    facts: Accelerators
    values: dict[str, CalibratedValue] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    errors: list[FitError] = field(default_factory=list)

    def take(self, name: str, value: float, how: str, *, unit: str = "", spread: Sequence[float] = ()) -> None:
        """Set a parameter; a value out of range keeps the library's and adds a note."""
        try:
            checked = Parameters(**{**self.p.model_dump(), name: float(value)})
        except ValidationError as problem:
            reason = problem.errors()[0]["msg"].lower()
            self.notes.append(f"{name} was measured as {value:.4g}, which the model does not take ({reason}).")
            return
        self.p = checked
        source = f"Measured: {how}; {of_device(self.samples.device)}"
        inside = [float(each) for each in (*spread, value) if np.isfinite(each)]
        self.values[name] = CalibratedValue(
            value=float(value), unit=unit, kind="measured", source=source[:2_000], low=min(inside), high=max(inside)
        )

    def missing(self, name: str, why: str) -> None:
        self.notes.append(f"{name} was not determined: {why}.")

    def compare(self, described: str, predicted: Floats, timings: Sequence[SampleTiming]) -> None:
        """Notes how far the formulas with the new values are from the timings that the values were taken from."""
        error = 100.0 * (predicted / np.array([each.seconds for each in timings]) - 1.0)
        mean = float(np.mean(np.abs(error)))
        if mean > DOUBTFUL:
            self.notes.append(_describe_doubt(described, mean, error, timings))
        self.errors.append(
            FitError(
                rows=len(timings),
                described=described,
                held_out=False,
                mean_absolute_percent=mean,
                median_absolute_percent=float(np.median(np.abs(error))),
                bias_percent=float(np.median(error)),
            )
        )


def _describe_doubt(described: str, mean: float, error: Floats, timings: Sequence[SampleTiming]) -> str:
    """Return the sentence on a poor fit: either the timings are noisy, or the formula does not describe them."""
    spread = 100.0 * max(each.spread for each in timings)
    if spread > mean / 2.0:
        return (
            f"The timings of {described} disagree with the formula and with one another by {mean:.0f} %: measure again "
            "on an idle machine before trusting what follows from them."
        )
    return (
        f"The formula is {error.min():+.0f} to {error.max():+.0f} % from the timings of {described}, {mean:.0f} % on "
        f"average, while each of them repeats within {spread:.1f} %: it does not describe all of their sizes, and "
        "measuring again would not change that."
    )


def measured_calibration(samples: Samples, system: System, name: str) -> Calibration:
    """Returns the calibration of `system` by samples taken on it.

    Args:
        samples: the measurements.
        system: peaks, bandwidths and counts that the parameters are shares of.
        name: of the calibration.
    """
    library = library_calibration()
    found = _Found(parameters_of(library), system, samples, Accelerators.of(accelerator_of(system)))
    # In the order in which the formulas need them: rates of products depend on starts and on the memory.
    _add_launches(found)
    _add_memory(found)
    _add_products(found)
    _add_attention(found)
    _add_exchanges(found)
    _add_age(found)
    kept = [each for each in library.parameters if each not in found.values]
    values = {each: _keep_library_value(library.name, library.parameters[each]) for each in kept}
    notes = [
        "Rates are those of single operations one after another. In training, processors run hotter and wait for one "
        "another: expect step times somewhat longer than predicted, and fit measured steps where there are any.",
        *found.notes,
        *(f"Not measured: {each.what}: {each.reason}." for each in samples.skipped),
        *samples.remarks,
        f"Taken over from the calibration {library.name}: {', '.join(kept)}.",
    ]
    return Calibration(
        name=name,
        title=f"{samples.device.name}, microbenchmarks of {samples.device.date}"[:2_000],
        system=system.name,
        fitted_on=f"Microbenchmarks with PyTorch: {of_device(samples.device)}"[:2_000],
        date=samples.device.date,
        errors=tuple(found.errors),
        parameters={**found.values, **values},
        notes=tuple(note[:2_000] for note in notes),
        derived_from=library.name,
    )


def _keep_library_value(name: str, value: CalibratedValue) -> CalibratedValue:
    source = f"Not measured here; {value.kind} value of the calibration {name}: {value.source}"
    return value.model_copy(update={"source": source[:2_000]})


def _add_launches(found: _Found) -> None:
    samples, timings = found.samples, {each.kind: each for each in found.samples.launches}
    start = timings.get("graph") or (timings.get("kernel") if samples.device.kind == "cpu" else None)
    if start is None:
        found.missing("kernel_start", "no captured graph was timed")
    else:
        how = (
            "time of the smallest operators one after another, which a CPU's host and device share"
            if start.kind == "kernel"
            else "time of the smallest kernels inside a captured graph"
        )
        found.take("kernel_start", start.time.seconds, f"{how}, {spread_text(samples, [start.time])}", unit="s")
    if "block" not in timings or "block_forward" not in timings:
        found.missing("launch", "no block was timed")
        return
    _host_time(found, timings["block_forward"], timings["block"])


def _host_time(found: _Found, forward: LaunchSample, both: LaunchSample) -> None:
    """The host-bound floor turned round: time of a tiny block over the kernels that the model counts for it."""
    # t_l = t / n_f forward, and the same backward: the host-bound floor solved for the time per kernel.
    ahead, back = block_kernels(found.facts)
    passes = [forward.time.seconds / ahead, (both.time.seconds - forward.time.seconds) / back]
    how = (
        f"a tiny transformer block in plain PyTorch, {both.time.seconds * 1e6:.4g} us forward and backward, over the "
        f"{ahead + back:g} kernels that the model counts for it; frameworks add host time of their own; "
        f"{spread_text(found.samples, [both.time])}"
    )
    value = both.time.seconds / (ahead + back)
    found.take("launch", value, how, unit="s", spread=[each for each in passes if each > 0])
    if "launch" in found.values:
        fitted = library_calibration().parameters["launch"].value
        found.notes.append(
            f"launch is that of plain PyTorch, {value * 1e6:.3g} us; runs of Megatron-style frameworks, whose host "
            f"code does more, were fitted with {fitted * 1e6:.3g} us. Take that where such a framework is predicted."
        )


def _add_memory(found: _Found) -> None:
    transfers = found.samples.transfers
    largest = max((each.moved for each in transfers), default=0)
    long = [each for each in transfers if each.moved >= LONG_TRANSFER * largest]
    if not long:
        found.missing("memory", "no transfer was timed")
        return
    # eta_h = bytes over time, over the datasheet's bandwidth.
    shares = np.array([each.rate for each in long]) / float(found.facts.memory_bandwidth)
    how = (
        f"copies and triads of {largest / 1e6:,.0f} MB at {rate_text(float(np.median([t.rate for t in long])), 'B/s')} "
        f"over the system's bandwidth, {spread_text(found.samples, [each.time for each in long])}"
    )
    found.take("memory", float(np.median(shares)), how, spread=shares.tolist())


def _add_products(found: _Found) -> None:
    samples, facts = found.samples, found.facts
    sms, memory = float(facts.multiprocessors), float(facts.memory_bandwidth) * found.p.memory
    launch = next((each.time.seconds for each in samples.launches if each.kind == "kernel"), 0.0)
    launch = 0.0 if samples.device.kind == "cpu" else launch
    wide = [each for each in samples.products if each.datatype == samples.device.datatype]
    fit = fit_products(wide, memory, sms, found.p, launch=launch)
    name = SUSTAINED[GENERATIONS[int(facts.generation)]]
    if fit is None:
        found.missing(name, "no product was bound by the matrix units")
        return
    if fit.shaped:
        shape = f"waves and depth that make the rates of {len(fit.used)} shapes agree best"
        found.take("wave", fit.wave, shape, unit="waves")
        found.take("depth", fit.depth, shape, unit="elements")
    else:
        found.notes.append("wave and depth keep the library's values: the products do not call for others.")
    # R16 = peak m (power factor): the sustained rate solved for m.
    scale = float(facts.flops16) * float(power_factor(facts, found.p))
    how = _product_text(samples, fit, samples.device.datatype)
    found.take(name, fit.rate / scale, how, spread=[fit.low / scale, fit.high / scale])
    predicted = product_seconds(fit.used, fit.rate, memory, sms, found.p)
    found.compare(f"products in {samples.device.datatype}", predicted, [each.time for each in fit.used])
    _eight_bit(found, fit, memory, launch)


def _product_text(samples: Samples, fit: ProductFit, datatype: str) -> str:
    return (
        f"{len(fit.used)} products in {datatype}, {rate_text(fit.rate, 'FLOP/s')} for long ones, over the system's "
        f"peak, {spread_text(samples, [each.time for each in fit.used])}"
    )


def _eight_bit(found: _Found, wide: ProductFit, memory: float, launch: float) -> None:
    """8 bits relative to 16: the share of their peak that each reaches."""
    samples, facts = found.samples, found.facts
    name = "eight_bit_blackwell" if GENERATIONS[int(facts.generation)] == "blackwell" else "eight_bit"
    narrow = [each for each in samples.products if each.datatype == "float8"]
    if not narrow or float(facts.flops8) <= 0:
        found.missing(name, "no 8-bit product was timed" if not narrow else "the system has no 8-bit peak")
        return
    sms = float(facts.multiprocessors)
    fit = fit_products(narrow, memory, sms, found.p, launch=launch, shape=False)
    if fit is None:
        found.missing(name, "no 8-bit product was bound by the matrix units")
        return
    # R8 = peak8 m (power factor) r8: relative to what 16 bits reach of their peak.
    scale = wide.rate * float(facts.flops8) / float(facts.flops16)
    how = _product_text(samples, fit, "float8") + ", relative to 16 bits"
    found.take(name, fit.rate / scale, how, spread=[fit.low / scale, fit.high / scale])
    predicted = product_seconds(fit.used, fit.rate, memory, sms, found.p)
    found.compare("products in float8", predicted, [each.time for each in fit.used])


def _add_attention(found: _Found) -> None:
    native = [each for each in found.samples.attentions if each.kernel == "native"]
    flash = [each for each in found.samples.attentions if each.kernel == "flash2"]
    # On Ampere both names mean the same kernel; elsewhere the older one gives the share of the native one only if
    # that was measured too, and the native one with the library's share if not.
    ampere = GENERATIONS[int(found.facts.generation)] == "ampere"
    first = native or flash
    if not first:
        found.missing("attention", "no fused attention was timed")
        return
    _attention_share(found, first, "attention")
    if native and flash and not ampere and "attention" in found.values:
        _attention_share(found, flash, "foreign_kernel")


def _attention_share(found: _Found, attentions: Sequence[Attention], name: str) -> None:
    most = max(_count_scores(each) for each in attentions)
    long = [each for each in attentions if _count_scores(each) >= LONG_ATTENTION * most]
    shares = attention_shares(long, found.facts, found.p, name)
    usable = shares[np.isfinite(shares)]
    if not usable.size:
        found.missing(name, "the attention timings are shorter than the kernels' start")
        return
    sequences = ", ".join(f"{each.sequence:,}" for each in long)
    how = (
        f"causal attention forward and backward, sequences of {sequences} tokens, turned into a share of the peak, "
        f"{spread_text(found.samples, [each.both for each in long])}"
    )
    found.take(name, float(np.median(usable)), how, spread=usable.tolist())
    described = f"attention forward and backward, {attentions[0].kernel} kernel"
    found.compare(described, attention_seconds(attentions, found.facts, found.p), [each.both for each in attentions])


def _count_scores(attention: Attention) -> float:
    """Scores of all heads and sequences [dimensionless]."""
    return attention.batch * attention.heads * attention.sequence**2


def _add_exchanges(found: _Found) -> None:
    samples = found.samples
    inside = [each for each in samples.exchanges if each.ranks <= float(found.facts.domain)]
    fit = fit_exchanges(inside, found.facts, found.p)
    if fit is None:
        why = "no collective was timed" if not inside else "the collectives do not show a rate"
        found.missing("scale_up", why)
        found.missing("latency", why)
        return
    timings = [each.time for each in inside]
    sizes = f"{min(each.size for each in inside) / 1e3:,.3g} kB to {max(each.size for each in inside) / 1e6:,.3g} MB"
    how = (
        f"all-reduce and all-gather over {inside[0].ranks} ranks of one machine, {sizes}, "
        f"{spread_text(samples, timings)}"
    )
    found.take("scale_up", fit.scale_up, f"{how}; over the link's rate in the system")
    found.take("latency", fit.latency, how, unit="s")
    found.compare("collectives in one machine", exchange_seconds(inside, found.facts, found.p), timings)


def _add_age(found: _Found) -> None:
    """Measured rates hold for the installed software, regardless of its age."""
    generation = GENERATIONS[int(found.facts.generation)]
    if f"sustained_{generation}" in found.values:
        found.values["immaturity"] = CalibratedValue(
            value=0.0,
            unit="1/year",
            kind="stated",
            source="None: the rates were measured with the software that is installed",
        )
