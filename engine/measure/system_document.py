"""The measured machine as a system: measured and other values, each marked.

With a similar system of the library, datasheet values stay and measured efficiencies replace its tables; the copy names
its original. Without one, peaks are the highest rates seen, and everything else is marked as assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import hardware
from engine.cost_models.calibrated import Accelerators, accelerator_of, library_calibration, parameters_of
from engine.measure.fits import ExchangeFit, exchange_seconds, fit_exchanges
from engine.measure.provenance import of_device, rate_text
from engine.measure.samples import ExchangeSample, MeasureError, Product, Samples, Transfer
from hardware import System

__all__ = ["SIXTEEN_BIT", "measured_system", "resembling"]

SIXTEEN_BIT: Final = ("bfloat16", "float16")
TERA, GIGA, GIB = 1e12, 1e9, 2.0**30
"""Units of system documents in base units: TFLOP/s, GB/s, GiB."""
LONG: Final = 0.5
"""Transfers of at least this part of the largest count as long. Source: stated by us."""
VECTOR_SHARE: Final = 16.0
"""Matrix rate in 16 bits over vector rate in 32 bits [dimensionless]: 312 over 19.5 TFLOP/s of the A100; the H100's 989
over 66.9 is 14.8. Source: their datasheets."""
OPERATIONS: Final = {
    "p2p": {"scalar": 1.0, "offset": None},
    "reduce_scatter": {"scalar": 1.0, "offset": -1.0},
    "all_gather": {"scalar": 1.0, "offset": -1.0},
    "all_reduce": {"scalar": 2.0, "offset": -1.0},
}


def measured_system(samples: Samples, like: System | None, name: str) -> System:
    """Returns the system that samples describe.

    Args:
        samples: the measurements.
        like: the system whose values stand where nothing was measured; None for none.
        name: of the new system.

    Raises:
        MeasureError: nothing was measured that a system needs, or `like` computes in other datatypes.
    """
    if not samples.products or not samples.transfers:
        raise MeasureError("Neither a system nor a calibration follows from samples without products and transfers.")
    if like is None:
        return _build_from_measurements(samples, name)
    return _build_from_library(samples, like, name)


def resembling(samples: Samples) -> list[str]:
    """Returns the names of library systems whose accelerator is called like the device, for `like`.

    Args:
        samples: the measurements.
    """
    words = set(samples.device.name.lower().replace("-", " ").split())
    found = []
    for name in hardware.names():
        facts = hardware.load(name).accelerator
        if facts is not None and facts.name.lower().split("-")[0] in words:
            found.append(name)
    return found


def _select_long(transfers: Sequence[Transfer]) -> list[Transfer]:
    """The transfers of most bytes: smaller ones may stay in a cache."""
    largest = max(each.moved for each in transfers)
    return [each for each in transfers if each.moved >= LONG * largest]


def _build_efficiency_table(pairs: Iterable[tuple[float, float]]) -> list[list[float]]:
    """(threshold, efficiency) from the largest down to 0, equal thresholds once, at their best."""
    best: dict[float, float] = {}
    for threshold, efficiency in pairs:
        key = float(f"{threshold:.4g}")
        best[key] = max(best.get(key, 0.0), float(f"{min(efficiency, 1.0):.4g}"))
    rows = sorted(([threshold, best[threshold]] for threshold in best), reverse=True)
    rows[-1][0] = 0.0  # what is smaller still is no faster
    return rows


def _product_table(products: Sequence[Product], peak: float) -> list[list[float]]:
    return _build_efficiency_table((each.operations / GIGA, each.rate / peak) for each in products)


def _transfer_table(transfers: Sequence[Transfer], peak: float) -> list[list[float]]:
    return _build_efficiency_table((each.moved / 1e6, each.rate / peak) for each in transfers)


def _products_of_type(samples: Samples, datatype: str) -> list[Product]:
    return [each for each in samples.products if each.datatype == datatype]


def _measured_types(samples: Samples) -> list[str]:
    return list(dict.fromkeys(each.datatype for each in samples.products))


def _best_rate(entries: Sequence[Product] | Sequence[Transfer]) -> float:
    return max(each.rate for each in entries)


def _build_note(what: str, how: str, samples: Samples) -> str:
    return f"Measured: {what}: {how} ({of_device(samples.device)})."


def _list_notes(samples: Samples) -> list[str]:
    types = _measured_types(samples)
    notes = [
        _build_note(
            f"matrix.{each}",
            f"{len(_products_of_type(samples, each))} products, the fastest at "
            f"{rate_text(_best_rate(_products_of_type(samples, each)), 'FLOP/s')}",
            samples,
        )
        for each in types
    ]
    rate = rate_text(_best_rate(_select_long(samples.transfers)), "B/s")
    notes.append(_build_note("mem1", f"copies and triads, long ones at up to {rate}", samples))
    return [*notes, *(f"Not measured: {each.what}: {each.reason}." for each in samples.skipped), *samples.remarks]


def _exchange_fit(exchanges: Sequence[ExchangeSample], system: System) -> ExchangeFit | None:
    facts = Accelerators.of(accelerator_of(system))
    return fit_exchanges(exchanges, facts, parameters_of(library_calibration()))


def _reduction_latency(fit: ExchangeFit, exchanges: Sequence[ExchangeSample], system: System) -> float:
    """Time of an all-reduce of nothing [s], which Calculon's model adds to every collective."""
    facts = Accelerators.of(accelerator_of(system))
    p = parameters_of(library_calibration()).model_copy(update={"latency": fit.latency})
    nothing = ExchangeSample.model_construct(kind="all_reduce", ranks=exchanges[0].ranks, size=0)
    return float(exchange_seconds([nothing], facts, p)[0])


def _build_from_library(samples: Samples, like: System, name: str) -> System:
    device = samples.device
    if device.datatype not in like.matrix:
        raise MeasureError(
            f"--like {like.name} does not compute in {device.datatype}, which was measured here; "
            f"it has {', '.join(like.datatypes)}."
        )
    if device.datatype == "float32" and set(SIXTEEN_BIT) & set(like.matrix):
        raise MeasureError(
            f"--like {like.name} is rated in 16 bits, but on this {device.kind.upper()} float32 was measured; "
            "leave --like out, or name a system with float32 alone."
        )
    changes: dict[str, Any] = {}
    notes = _list_notes(samples)
    above: list[str] = []
    for datatype in _measured_types(samples):
        if datatype not in like.matrix:
            continue
        peak, products = like.matrix[datatype].tflops * TERA, _products_of_type(samples, datatype)
        # A device that beats the named system's peak: the peak is raised, or efficiencies would pass 1.
        if _best_rate(products) > peak:
            above.append(f"matrix.{datatype}.tflops")
            peak = _best_rate(products)
            changes[f"matrix.{datatype}.tflops"] = peak / TERA
        changes[f"matrix.{datatype}.gflops_efficiency"] = _product_table(products, peak)
    bandwidth = like.mem1.bandwidth_gb_per_s * GIGA
    if _best_rate(_select_long(samples.transfers)) > bandwidth:
        above.append("mem1.bandwidth_gb_per_s")
        bandwidth = _best_rate(_select_long(samples.transfers))
        changes["mem1.bandwidth_gb_per_s"] = bandwidth / GIGA
    changes["mem1.mb_efficiency"] = _transfer_table(samples.transfers, bandwidth)
    if device.kind != "cpu":
        changes["mem1.capacity_gib"] = device.memory_bytes / GIB
    changes |= _network_changes(samples, like, above, notes)
    notes += [f"{path} was measured above {like.name}, which may describe another accelerator." for path in above]
    facts = like.accelerator
    counted = device.multiprocessors
    if facts is not None and counted is not None and facts.multiprocessors not in (None, counted):
        notes.append(
            f"The device reports {counted} multiprocessors, {like.name} has {facts.multiprocessors}: "
            "it may describe another accelerator."
        )
        changes["accelerator.multiprocessors"] = counted
    title = f"{like.title or like.name}, measured {device.date}"
    copied = hardware.edited(like, changes, name=name, title=title)
    source = f"{like.source}; {', '.join(changes)}: measured ({of_device(device)})"
    return copied.model_copy(update={"source": source[:2_000], "notes": (*like.notes, *notes)})


def _network_changes(samples: Samples, like: System, above: list[str], notes: list[str]) -> dict[str, Any]:
    exchanges = [each for each in samples.exchanges if each.ranks <= like.network_spanning(1).size]
    if len(exchanges) < len(samples.exchanges):
        notes.append(f"Collectives over more processors than the inner network of {like.name} has say nothing of it.")
    fit = _exchange_fit(exchanges, like)
    if fit is None:
        return {}
    changes: dict[str, Any] = {}
    efficiency = fit.scale_up
    # So for the network: its rate is raised instead.
    if efficiency > 1.0:
        above.append("networks.0.bandwidth_gb_per_s")
        changes["networks.0.bandwidth_gb_per_s"] = like.network_at(0).bandwidth_gb_per_s * efficiency
        efficiency = 1.0
    changes["networks.0.efficiency"] = efficiency
    changes["networks.0.latency_s"] = _reduction_latency(fit, exchanges, like)
    notes.append(_build_note("networks.0", f"collectives over {exchanges[0].ranks} processors", samples))
    return changes


def _build_from_measurements(samples: Samples, name: str) -> System:
    device = samples.device
    types = _measured_types(samples)
    # Without a named system the fastest product stands for the peak.
    peaks = {each: _best_rate(_products_of_type(samples, each)) for each in types}
    vector = peaks[device.datatype] if device.kind == "cpu" else peaks[device.datatype] / VECTOR_SHARE
    basis = (
        "The rate of matrix products: the same units of a CPU do both; not measured."
        if device.kind == "cpu"
        else "A sixteenth of the matrix rate in 16 bits, as on A100 and H100; not measured."
    )
    bandwidth = _best_rate(_select_long(samples.transfers))
    network = {
        "bandwidth_gb_per_s": 1.0,
        "efficiency": 1.0,
        "size": device.count,
        "latency_s": 0.0,
        "operations": OPERATIONS,
        "must_be_filled": False,
        "processor_usage": 0.0,
    }
    assumed = [
        ("vector.*.tflops", basis),
        ("vector.*.gflops_efficiency", "The whole rate at every size; not measured."),
        ("mem2", "None: whether the host's memory could hold anything was not measured."),
        ("processing_mode", "As in all of Calculon's systems: arithmetic and memory time of an operation add up."),
        ("networks.0.operations", "Bytes of ring algorithms."),
        ("networks.0.processor_usage", "None: not measured."),
        ("networks.0.must_be_filled", "No: not measured."),
        ("networks.0.size", "Every accelerator of this machine; its links to other machines were not measured."),
    ]
    facts = {
        "name": device.name[:100],
        "generation": device.generation,
        "multiprocessors": device.multiprocessors,
        "clock_ghz": None if device.clock_hz is None else device.clock_hz / GIGA,
    }
    document: dict[str, Any] = {
        "format": "shardscape-system/1",
        "name": name,
        "title": f"{device.name}, measured {device.date}"[:2_000],
        "source": f"Measured: {of_device(device)}"[:2_000],
        "matrix": {
            each: {
                "tflops": peaks[each] / TERA,
                "gflops_efficiency": _product_table(_products_of_type(samples, each), peaks[each]),
            }
            for each in types
        },
        "vector": {each: {"tflops": vector / TERA, "gflops_efficiency": [[0.0, 1.0]]} for each in types},
        "mem1": {
            "capacity_gib": device.memory_bytes / GIB,
            "bandwidth_gb_per_s": bandwidth / GIGA,
            "mb_efficiency": _transfer_table(samples.transfers, bandwidth),
        },
        "mem2": {"capacity_gib": 0.0, "bandwidth_gb_per_s": 0.0, "mb_efficiency": [[0.0, 1.0]]},
        "processing_mode": "no_overlap",
        "networks": [network],
        "accelerator": facts,
        "notes": _list_notes(samples),
    }
    if samples.exchanges:
        network["size"] = max(device.count, samples.exchanges[0].ranks)
        fit = _exchange_fit(samples.exchanges, hardware.load_document(document))
        if fit is not None:
            # A hair above, so that the share of it that is found again is not above 1 by rounding.
            network["bandwidth_gb_per_s"] = fit.scale_up * (1.0 + 1e-9)
            network["latency_s"] = _reduction_latency(fit, samples.exchanges, hardware.load_document(document))
            rate = rate_text(fit.scale_up * GIGA, "B/s")
            how = f"collectives over {samples.exchanges[0].ranks} ranks, long ones at {rate}"
            document["notes"].append(_build_note("networks.0", how, samples))
            return hardware.load_document({**document, "assumptions": _build_marks(assumed)})
    assumed.append(("networks.0.bandwidth_gb_per_s", "1 GB/s, a placeholder: no collective was measured."))
    assumed.append(("networks.0.latency_s", "None: no collective was measured."))
    return hardware.load_document({**document, "assumptions": _build_marks(assumed)})


def _build_marks(assumed: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"field": field, "basis": basis} for field, basis in assumed]
