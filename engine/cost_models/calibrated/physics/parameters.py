"""Parameters of the calibrated cost model: few fitted, the rest stated, each with its source.

A calibration is a document (`hardware.Calibration`): every value with unit, kind and source. The physics reads a
frozen `Parameters`; the shipped values are the calibration "global" of the library in `hardware`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hardware import Calibration, CalibrationFileError, load_calibration

__all__ = [
    "ADDED",
    "FITTED",
    "POWER_REFERENCES",
    "SUSTAINED",
    "Parameters",
    "largest",
    "library_calibration",
    "parameters",
    "parameters_of",
]


class Parameters(BaseModel):
    """Values that the formulas use; units in brackets, [] for none. Sources are in the calibration document."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    sustained_ampere: float = Field(gt=0, le=1.5, description="16-bit matrix rate over the peak, long products []")
    sustained_hopper: float = Field(gt=0, le=1.5, description="likewise []")
    sustained_blackwell: float = Field(gt=0, le=1.5, description="likewise []")
    sustained_cdna: float = Field(gt=0, le=1.5, description="likewise, AMD's CDNA 3 and 4 []")
    sustained_tpu: float = Field(gt=0, le=1.5, description="likewise, TPUs with units of 128 x 128, v4 to v5p []")
    sustained_tpu_wide: float = Field(gt=0, le=1.5, description="likewise, of 256 x 256, v6e and 7x []")
    sustained_other: float = Field(gt=0, le=1.5, description="likewise, generations without measurements []")
    power_exponent: float = Field(ge=0, le=1, description="of power per peak FLOP/s; above 1, peaks slow down []")
    eight_bit: float = Field(gt=0, le=2, description="8-bit rate over its peak, relative to 16 bits, Hopper []")
    eight_bit_blackwell: float = Field(gt=0, le=2, description="likewise, Blackwell []")
    attention: float = Field(gt=0, le=1.5, description="matrix rate in fused attention over the 16-bit peak []")
    launch: float = Field(gt=0, le=1e-3, description="host time per kernel [s]")
    overlap_data: float = Field(ge=0, le=1, description="share of data-parallel traffic that overlap hides []")
    overlap_tensor: float = Field(ge=0, le=1, description="share of tensor-parallel traffic that overlap hides []")
    immaturity: float = Field(ge=0, le=2, description="slowness per year that software is short of mature [1/year]")

    scale_up: float = Field(gt=0, le=1, description="share of the scale-up link rate []")
    scale_out: float = Field(gt=0, le=1, description="share of the scale-out and host link rates []")
    latency: float = Field(ge=0, description="base latency of a collective [s]")
    ring_latency: float = Field(ge=0, description="latency per hop of a layer-wise gather [s]")
    tensor_hop: float = Field(ge=0, description="latency per rank of a gather per tensor [s]")
    memory: float = Field(gt=0, le=1, description="share of the memory bandwidth []")
    wave: float = Field(ge=0, description="waves of tiles lost per product [waves]")
    depth: float = Field(ge=0, description="inner dimension lost per product [elements]")
    kernel_start: float = Field(ge=0, description="start and end of a kernel on the device [s]")
    misaligned: float = Field(ge=0, description="slowness of products that are no multiple of 64 []")
    mature_years: float = Field(ge=0, description="age at which software is mature [years]")
    exponentials: float = Field(ge=0, description="share of the exponentials' time that shows []")
    flash1: float = Field(gt=0, description="FlashAttention 1 over 2 []")
    foreign_kernel: float = Field(gt=0, description="kernel of an older generation over a native one []")
    exchange_host: float = Field(gt=0, le=1, description="all-to-all share of the scale-up rate in a host []")
    exchange_rack: float = Field(gt=0, le=1, description="likewise in a rack-wide domain []")
    exchange_network: float = Field(gt=0, le=1, description="all-to-all share of the sustained scale-out rate []")
    unfused_elementwise: float = Field(gt=0, description="element-wise traffic of an eager framework over fused []")
    plain_elementwise: float = Field(gt=0, description="likewise, plain operators with 32-bit upcasts []")
    compiled_elementwise: float = Field(gt=0, description="norms and positions, compiled over fused []")
    compiled_launch: float = Field(gt=0, description="host time, compiled over launched []")
    graphs_launch: float = Field(gt=0, description="host time, CUDA graphs over launched []")
    edge_launches: float = Field(ge=0, description="kernels of embedding, head and loss per microbatch []")
    straggler: float = Field(ge=0, description="slowness per doubling of processors above 8 []")
    step_constant: float = Field(ge=0, description="host work per step [s]")
    power_reference_ampere: float = Field(gt=0, description="power per 16-bit peak of the reference [W s/FLOP]")
    power_reference_hopper: float = Field(gt=0, description="likewise [W s/FLOP]")
    power_reference_blackwell: float = Field(gt=0, description="likewise [W s/FLOP]")
    reserve_factor: float = Field(ge=1, description="device memory in use over memory allocated for tensors []")


SUSTAINED: Mapping[str, str] = MappingProxyType(
    {
        "ampere": "sustained_ampere",
        "hopper": "sustained_hopper",
        "blackwell": "sustained_blackwell",
        "cdna3": "sustained_cdna",
        "cdna4": "sustained_cdna",
        "tpu v4": "sustained_tpu",
        "tpu v5e": "sustained_tpu",
        "tpu v5p": "sustained_tpu",
        "tpu v6e": "sustained_tpu_wide",
        "tpu7x": "sustained_tpu_wide",
        "other": "sustained_other",
    }
)
"""Parameter with the matrix rate of each generation of `inputs.GENERATIONS`."""

POWER_REFERENCES: Mapping[str, str] = MappingProxyType(
    {
        "ampere": "power_reference_ampere",
        "hopper": "power_reference_hopper",
        "blackwell": "power_reference_blackwell",
    }
)
"""Parameter with the power per peak FLOP/s that the matrix rate of a generation belongs to. Of other generations no two
accelerators of unlike power were measured: their rate does not depend on it."""

ADDED = frozenset({"sustained_cdna", "sustained_tpu", "sustained_tpu_wide"})
"""Parameters that calibrations of earlier releases do not have: their generations had the rate `sustained_other`."""

FITTED = (
    "sustained_ampere",
    "sustained_hopper",
    "sustained_blackwell",
    "sustained_cdna",
    "sustained_tpu",
    "sustained_tpu_wide",
    "attention",
    "launch",
    "immaturity",
)
"""The nine parameters that a fit changes; all others are stated. Fitting four more (power exponent, 8-bit rate, both
overlaps) predicts unseen halves worse than their round values do."""


@cache
def largest(name: str) -> float:
    """Return the largest value that a parameter may have, in its unit; infinite without a limit.

    Args:
        name: name of a field of `Parameters`.
    """
    return float(Parameters.model_json_schema()["properties"][name].get("maximum", math.inf))


def parameters_of(calibration: Calibration) -> Parameters:
    """Returns the values of a calibration.

    Args:
        calibration: its parameters, each with value and unit.

    Raises:
        hardware.CalibrationFileError: a value is missing or out of range.
    """
    try:
        given = {name: item.value for name, item in calibration.parameters.items()}
        if "sustained_other" in given:
            given = dict.fromkeys(ADDED, given["sustained_other"]) | given
        return Parameters(**given)
    except ValidationError as problem:
        first = problem.errors()[0]
        raise CalibrationFileError(
            f"{calibration.name}: parameter {'.'.join(map(str, first['loc']))}: {first['msg']}."
        ) from None


def library_calibration(name: str = "global") -> Calibration:
    """Returns a calibration of the library by name.

    Args:
        name: name of a calibration in the library.

    Raises:
        hardware.CalibrationFileError: the library has none of this name, or its file is wrong.
    """
    return load_calibration(name)


@cache
def parameters(name: str = "global") -> Parameters:
    """Returns the values of a calibration of the package's library.

    Args:
        name: name of a calibration in the library.

    Raises:
        hardware.CalibrationFileError: as for `library_calibration` and `parameters_of`.
    """
    return parameters_of(library_calibration(name))
