"""Operations of one block, one by one: work, traffic and time of each.

The formulas are the formulas of the block (`engine.cost_models.calibrated.physics.layers.block`), listed, not summed.
Times are of one microbatch on one processor, without recomputation and without waiting for the host.

Source: as for the block.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from engine.cost_models.calibrated.operation_columns import LABELS
from engine.cost_models.calibrated.physics.adapters import BACKWARD_TRAFFIC, adapter_seconds, adapter_traffic
from engine.cost_models.calibrated.physics.communication.expert_exchange import exchange
from engine.cost_models.calibrated.physics.inputs import Case, Floats, ModelShapes
from engine.cost_models.calibrated.physics.layers.attention import core_work
from engine.cost_models.calibrated.physics.layers.block import (
    Common,
    attention_layers,
    common,
    feedforward_layers,
    tensor_exchange,
)
from engine.cost_models.calibrated.physics.layers.elementwise import (
    ElementBytes,
    Traffic,
    activated,
    activation,
    cast,
    cast_products,
    casts,
    normed,
    norms,
)
from engine.cost_models.calibrated.physics.layers.experts import active_width, busiest_width, expert_layers, permuted
from engine.cost_models.calibrated.physics.layers.gemm import LinearLayer, MatrixUnit
from engine.cost_models.calibrated.physics.layers.launch import (
    block_launches,
    dense_factor,
    expert_launches,
    size_wait,
)
from engine.cost_models.calibrated.physics.layers.pattern_blocks import (
    cast_elements,
    exposed_share,
    local_products,
    mixing_limit,
    mixing_works,
    routed_width,
    sent_case,
    time_layer,
)
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates, sustained_rates
from engine.cost_models.calibrated.physics.layers.views import layer_cases
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.stages import PLAIN, blocks_by_kind
from models.layers import LayerKind, block_titles

__all__ = ["BLOCKS", "STAGES", "ProcessorLimits", "block_operations", "blocks_of", "bound", "limits", "summarised"]

STAGES: Final = ("fw", "agrad", "wgrad")
"""Forward; backward for the inputs (or all of backward where it is not two products); backward for the weights."""

BLOCKS: Final = {
    "experts": "With experts",
    "dense": "Dense",
    "experts_windowed": "With experts, windowed",
    "dense_windowed": "Dense, windowed",
}
"""Kinds of blocks, by their feed-forward half and whether attention has a window -> what people call them."""
_KINDS: Final = {
    "experts": PLAIN[2],
    "dense": PLAIN[0],
    "experts_windowed": PLAIN[3],
    "dense_windowed": PLAIN[1],
}


class ProcessorLimits(NamedTuple):
    """Limits of one processor for the linear layers: matrix rates [FLOP/s], memory bandwidths [bytes/s]."""

    peak: float
    sustained: float
    memory_peak: float
    memory_sustained: float


def limits(case: Case, p: Parameters) -> ProcessorLimits:
    """Returns the limits of a case of one row, in the precision of its linear layers [FLOP/s, bytes/s].

    Args:
        case: case of one row.
        p: parameters of a calibration.
    """
    accelerator, bits = case.accelerator, float(np.ravel(case.layout.linear_bits)[0])
    rates = sustained_rates(accelerator, case.software.age_years, p)
    # A precision without a peak runs at the rate of the next wider one.
    wider = [accelerator.flops16, accelerator.flops8, accelerator.flops4][: {16.0: 1, 8.0: 2}.get(bits, 3)]
    if (place := int(np.ravel(case.layout.linear_format)[0])) > 0:
        wider = [accelerator.flops16, accelerator.scaled_peaks[place - 1]]
    peak = next(_single_value(rate) for rate in reversed(wider) if _single_value(rate) > 0)
    sustained = _single_value(rates.linear_of(case.layout))
    return ProcessorLimits(peak, sustained, _single_value(accelerator.memory_bandwidth), _single_value(rates.memory))


def block_operations(case: Case, p: Parameters, kind: str) -> pd.DataFrame:
    """Returns the operations of a block of one kind, in the order they run.

    Columns: `name`; `label` for people; `engine`: "matrix", "memory", "network" or "host"; and for each stage of
    `STAGES` `{stage}_flops` [FLOP], `{stage}_mem_accessed` [bytes] and `{stage}_processing_time` [s]. Communication
    counts with what nothing hides of it.

    Args:
        case: case of one row.
        p: parameters of a calibration.
        kind: kind of block, of `BLOCKS`, or of `blocks_of` for a model with a pattern.
    """
    if case.model.pattern is not None:
        return _pattern_operations(case, p, kind)
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    experts, windowed = _KINDS[kind].experts, _KINDS[kind].windowed
    found = common(case, rates, p, windowed=windowed)
    width = active_width(case) if experts else case.model.feedforward
    per_processor = (busiest_width(case) if experts else width) / case.layout.tensor_par
    layers = expert_layers(case) if experts else feedforward_layers(case)
    ups = {name: layer for name, layer in layers.items() if name.endswith("up")}
    acted = activation(case, per_processor, case.tokens, rates, p)
    rows = [
        _traffic_row("norms", normed(case, p), found.norms),
        _traffic_row("casts", cast(case, width), casts(case, width, rates)),
        *_attention_rows(case, found, windowed),
        *(_linear_row(name, layer, found.unit) for name, layer in ups.items()),
        _traffic_row("activation", activated(case, per_processor, case.tokens, p), acted),
        *(_linear_row(name, layer, found.unit) for name, layer in layers.items() if name not in ups),
    ]
    if experts:
        moving = permuted(case) / rates.memory
        rows.append(_traffic_row("permutation", ElementBytes(permuted(case), permuted(case)), Traffic(moving, moving)))
        sent = 2.0 * exchange(case, rates, p)
        rows.append(_network_row("expert_exchange", sent, sent))
        launches = block_launches(case)[0] * dense_factor(case, p) + expert_launches(case)[0]
        rows.append(_wait_row(size_wait(case, launches, p)))
    rows += _adapter_rows(case, found.unit, _KINDS[kind].size)
    rows.append(_network_row("tensor_exchange", 2.0 * found.exchange, 2.0 * found.exchange))
    return _present_operations(case, pd.DataFrame(rows))


def _present_operations(case: Case, table: pd.DataFrame) -> pd.DataFrame:
    """Return the operations that run, without passes that frozen weights or a forward pass alone do not have."""
    left_out = STAGES[1:] if case.forward_only is not None else STAGES[2:] if case.frozen is not None else ()
    absent = [name for stage in left_out for name in map(str, table) if name.startswith(f"{stage}_")]
    table = table.assign(**dict.fromkeys(absent, 0.0))
    times = table[[f"{stage}_processing_time" for stage in STAGES]].sum(axis=1)
    return table[times > 0].reset_index(drop=True)


def blocks_of(model: ModelShapes) -> tuple[str, ...]:
    """Returns the kinds of blocks that a model has, of `BLOCKS`, or the titles of the blocks of its pattern.

    Args:
        model: shapes of one model.
    """
    if model.pattern is not None:
        return block_titles(model.pattern)
    present = {kind for kind, number in zip(PLAIN, blocks_by_kind(model), strict=True) if _single_value(number) > 0}
    return tuple(name for name in BLOCKS if _KINDS[name] in present)


def _pattern_operations(case: Case, p: Parameters, kind: str) -> pd.DataFrame:
    """Return the operations of a block of a pattern, layer by layer."""
    assert case.model.pattern is not None
    place = block_titles(case.model.pattern).index(kind)
    rates = sustained_rates(case.accelerator, case.software.age_years, p)
    unit = MatrixUnit(rates.linear_of(case.layout), rates.memory, case.accelerator.multiprocessors, p)
    sublayers = float(case.model.pattern.blocks[place].sublayers)
    layers = layer_cases(case)[place]
    attentions = [view for layer, view in layers if layer.softmax() is not None]
    entering, leaving = cast_elements(case, layers)
    cast_bytes = cast_products(case, sublayers, entering, leaving)
    rows = [
        _traffic_row("norms", normed(case, p, sublayers, attentions), norms(case, rates, p, sublayers, attentions)),
        _traffic_row("casts", cast_bytes, Traffic(*(each / rates.memory for each in cast_bytes))),
    ]
    for layer, view in layers:
        rows += _layer_rows(layer, view, rates, p, unit)
    if any(layer.routing() is not None for layer, _ in layers):
        launches = block_launches(case)[0] * sublayers / 2.0 * dense_factor(case, p)
        each = [time_layer(layer, view, rates, p, unit).launches[0] for layer, view in layers]
        rows.append(_wait_row(size_wait(case, sum(each, start=launches), p)))
    rows += _adapter_rows(case, unit, place)
    tensor = sublayers * tensor_exchange(case, rates, p) * exposed_share(case, p)
    rows.append(_network_row("tensor_exchange", tensor, tensor))
    return _present_operations(case, pd.DataFrame(rows))


def _adapter_rows(case: Case, unit: MatrixUnit, size: int) -> list[dict[str, Any]]:
    """Return the row of the adapters of a block, all together; none where all weights are trained."""
    if case.frozen is None:
        return []
    found = adapter_traffic(case, size)
    moved = ElementBytes(found.moved, BACKWARD_TRAFFIC * found.moved)
    return [_traffic_row("adapters", moved, Traffic(*adapter_seconds(found, unit.memory, unit.p.kernel_start)))]


def _layer_rows(
    layer: LayerKind, view: Case, rates: SustainedRates, p: Parameters, unit: MatrixUnit
) -> list[dict[str, Any]]:
    """Return the rows of one layer of a pattern: its products in order, its core, and its messages."""
    times = time_layer(layer, view, rates, p, unit)
    title = layer.title[:1].upper() + layer.title[1:]

    def words(name: str) -> str:
        return LABELS.get(name, f"{title}: {name.replace('_', ' ')}")

    products = [_linear_row(name, each, unit, words(name)) for name, each in local_products(layer, view).items()]
    # What stands between the products comes before the last of them; a kind may also have none.
    first, last = products[:-1], products[-1:]
    acted = layer.activation()
    if acted is None:
        softmax = layer.softmax()
        if softmax is not None:
            works = core_work(view, windowed=softmax.window is not None)
            name = "attention_core"
        else:
            works, name = mixing_works(layer, view), "mixing"
        limit = mixing_limit(layer, view, rates, p) if softmax is None else ""
        passes = zip(("fw", "agrad"), works, times.core, strict=True)
        core = {stage: (work.operations, work.moved, time) for stage, work, time in passes}
        row = _build_row(name, "matrix", label=words(name), limit=limit, **core)
        ring = _network_row("context_ring", *times.context)
        return [*first, row, ring, _network_row("inner_sum", times.reduced, times.reduced), *last]
    width = routed_width(layer, view) / view.layout.tensor_par
    moved = activated(view, width, view.tokens, p)
    rows = [*first, _traffic_row("activation", moved, activation(view, width, view.tokens, rates, p)), *last]
    if layer.routing() is not None:
        there = permuted(sent_case(layer, view))
        moving = there / rates.memory
        rows.append(_traffic_row("permutation", ElementBytes(there, there), Traffic(moving, moving)))
        rows.append(_network_row("expert_exchange", times.exchange, times.exchange))
    return rows


def bound(intensity: float, rate: float, bandwidth: float) -> str:
    """Return the limit that bounds some work: "compute" or "memory".

    Args:
        intensity: operations per byte of memory traffic [FLOP/byte].
        rate: peak or sustained compute rate [FLOP/s].
        bandwidth: bandwidth of its memory [bytes/s].
    """
    # Roofline (Williams et al. 2009): memory-bound below R / B operations per byte.
    return "compute" if intensity * bandwidth >= rate else "memory"


def summarised(operations: pd.DataFrame, most: ProcessorLimits) -> pd.DataFrame:
    """Return operations with the columns of `engine.cost_models.calibrated.operation_columns`, in the base units of its
    register.

    A figure is not a number where it does not apply: work of traffic and communication, the traffic of a fused
    attention core. `bound` is the limit of a product's forward pass at sustained rates; for other operations, their
    engine.

    Args:
        operations: table of `block_operations`, one row per operation.
        most: limits of the processor [FLOP/s, bytes/s].
    """
    forward = operations["fw_processing_time"]
    backward = operations["agrad_processing_time"] + operations["wgrad_processing_time"]
    whole = float((forward + backward).sum()) or 1.0
    flops = operations[[f"{stage}_flops" for stage in STAGES]].sum(axis=1)
    moved = operations[[f"{stage}_mem_accessed" for stage in STAGES]].sum(axis=1)
    intensity = (operations["fw_flops"] / operations["fw_mem_accessed"]).where((flops > 0) & (moved > 0))
    limit = [
        stated or _limit_of(engine, ratio, most)
        for stated, engine, ratio in zip(operations["limit"], operations["engine"], intensity, strict=True)
    ]
    return operations.assign(
        fw_time=forward,
        bw_time=backward,
        share=(forward + backward) / whole,
        flops=flops.where(flops > 0),
        mem_accessed=moved.where(moved > 0),
        arithmetic_intensity=intensity,
        rate=(flops / (forward + backward)).where(flops > 0),
        bound=limit,
    )


def _limit_of(engine: str, intensity: float, most: ProcessorLimits) -> str:
    """Return what bounds an operation: its engine, or the roof that its products meet first."""
    if engine != "matrix":
        return engine
    # A core that is fused with its neighbours moves nothing of its own.
    return "compute" if pd.isna(intensity) else bound(intensity, most.sustained, most.memory_sustained)


def _attention_rows(case: Case, found: Common, windowed: bool) -> list[dict[str, Any]]:
    """Return the rows of the projections and of the attention core between them."""
    layers = dict(attention_layers(case))
    out = layers.pop("attention_output")
    forward, backward = core_work(case, windowed=windowed)
    core = _build_row(
        "attention_core",
        "matrix",
        fw=(forward.operations, forward.moved, found.core.forward),
        agrad=(backward.operations, backward.moved, found.core.backward),
    )
    return [
        *(_linear_row(name, layer, found.unit) for name, layer in layers.items()),
        core,
        _network_row("context_ring", *found.context),
        _linear_row("attention_output", out, found.unit),
    ]


def _linear_row(name: str, layer: LinearLayer, unit: MatrixUnit, label: str = "") -> dict[str, Any]:
    slower = layer.slower(unit.p)
    fw, agrad, wgrad = (
        (work.operations, work.moved, time * slower)
        for work, time in zip(layer.works(), layer.products(unit), strict=True)
    )
    return _build_row(name, "matrix", label=label, fw=fw, agrad=agrad, wgrad=wgrad)


def _traffic_row(name: str, moved: ElementBytes, traffic: Traffic) -> dict[str, Any]:
    none = np.zeros(())
    return _build_row(
        name, "memory", fw=(none, moved.forward, traffic.forward), agrad=(none, moved.backward, traffic.backward)
    )


def _network_row(name: str, forward: Floats, backward: Floats) -> dict[str, Any]:
    none = np.zeros(())
    return _build_row(name, "network", fw=(none, none, forward), agrad=(none, none, backward))


def _wait_row(forward: Floats) -> dict[str, Any]:
    none = np.zeros(())
    return _build_row("size_wait", "host", fw=(none, none, forward))


def _build_row(
    name: str, engine: str, *, label: str = "", limit: str = "", **stages: tuple[Floats, Floats, Floats]
) -> dict[str, Any]:
    """Return the row of an operation.

    Args:
        name: of the operation.
        engine: part of the processor that works on it.
        label: its words; the entry of `LABELS` if empty.
        limit: what bounds it, where its own formula says so.
        stages: name -> operations [FLOP], bytes, seconds; 0 for missing stages.
    """
    row: dict[str, Any] = {"name": name, "label": label or LABELS[name], "engine": engine, "limit": limit}
    for stage in STAGES:
        values = stages.get(stage, (np.zeros(()),) * 3)
        names = ("flops", "mem_accessed", "processing_time")
        row |= {f"{stage}_{what}": _single_value(value) for what, value in zip(names, values, strict=True)}
    return row


def _single_value(value: Floats) -> float:
    return float(np.ravel(value)[0])
