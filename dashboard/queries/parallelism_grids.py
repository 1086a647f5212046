"""Grids of data, horizontal and pipeline parallelism by DistIR's simulator, for its own models and a scenario's."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd

from dashboard.compat.caches import remembered
from engine import Scenario
from engine.questions.distir import (
    fill_settings,
    find_distir_grid,
    grid_bandwidth,
    grid_constants,
    network_sizes,
)
from engine.questions.documents.distir import DistIRQuestion
from engine.reproductions.distir.simulator import over_devices, with_speedup
from models import datatypes
from models.parameters import active_parameters, embedding_weights

__all__ = ["curves", "grid_of", "machine_of", "stack_of"]

SERIES: Final = (4, 8, 16, 32)
"""Microbatch counts of the pipeline's curves."""
_AS_TEXT: Final[dict[Any, Any]] = {DistIRQuestion: DistIRQuestion.model_dump_json}


def stack_of(scenario: Scenario) -> tuple[int, int]:
    """Return (layers, width) of a stack of square weights as wide as the model's hidden size, with as many weights.

    Counted are the weights that a token passes, without embedding and head; attention's products, norms and the loss
    over the vocabulary are not there. The number is even, as horizontal parallelism needs it.
    """
    if scenario.model.layers is not None and scenario.model.counts is not None:
        counts, hidden = scenario.model.counts, scenario.model.layers.hidden
        weights = counts.active - counts.embedding - counts.lm_head
    else:
        architecture = scenario.model.architecture_or_assumed()
        weights = active_parameters(architecture) - embedding_weights(architecture)
        hidden = architecture.hidden
    return max(2, 2 * round(weights / hidden**2 / 2)), hidden


def machine_of(scenario: Scenario) -> dict[str, Any]:
    """Return the constants of a scenario's system: peaks of matrix engine and memory, and the outermost network that
    the scenario's processors use between nodes.

    A peak is what no operation reaches, so steps come out too short.

    Args:
        scenario: scenario with the system, its number of processors, and the datatype of products.
    """
    system, datatype = scenario.system, scenario.datatype
    network = system.network_between_nodes(scenario.num_procs)
    constants: dict[str, Any] = {
        "flops": 1e12 * system.peak_tflops(datatype),
        "dram_bandwidth": 1e9 * system.mem1.bandwidth_gb_per_s,
        "bandwidth_gbps": 8.0 * network.bandwidth_gb_per_s,
        # DistIR counts whole bytes without scales; an element of 4 bits counts one.
        "datatype_bytes": max(datatypes.named(datatype).bits // 8, 1),
    }
    return constants


@remembered(32, hash_funcs=_AS_TEXT)
def grid_of(asked: DistIRQuestion) -> pd.DataFrame:
    """Return every configuration of one model and batch, with style, devices and speedup over one device.

    Args:
        asked: the question.
    """
    table = find_distir_grid(asked).table
    alone = table.loc[(table["D"] * table["H"] * table["P"]) == 1, "throughput"]
    return with_speedup(table, float(alone.iloc[0]))


@remembered(32, hash_funcs=_AS_TEXT)
def curves(asked: DistIRQuestion) -> pd.DataFrame:
    """Return speedups of data and pipeline parallelism alone, a curve per batch and per number of microbatches.

    Args:
        asked: the question, of one model and batch.
    """
    settings = fill_settings(asked)
    constants = grid_constants(settings)
    (size,), (batch,) = network_sizes(settings).values(), settings.batches or [1]
    batches = [batch // 8 * part for part in (1, 2, 4, 8)] if batch >= 8 else [batch]
    return over_devices(
        revision=constants.revision,
        width=size.width,
        layers=size.layers,
        batch=batch,
        bandwidth_gbps=grid_bandwidth(settings, constants),
        devices=[number for number in settings.devices or () if number > 1],
        batches=batches,
        microbatches=SERIES,
        **constants.arguments(),
    )
