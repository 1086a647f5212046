"""The parameters of the calibrated cost model: few fitted, the rest stated, each with where it comes from.

A calibration is a document: `data/*.json` holds every value with unit, kind (`fitted` or `stated`) and source. The
physics reads a frozen `Parameters`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FITTED", "Calibration", "Parameter", "Parameters", "calibration", "parameters"]


class Parameters(BaseModel):
    """Values that the formulas use. Seconds, bytes and dimensionless fractions."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sustained_ampere: float = Field(gt=0, le=1.2)
    sustained_hopper: float = Field(gt=0, le=1.2)
    sustained_blackwell: float = Field(gt=0, le=1.2)
    sustained_other: float = Field(gt=0, le=1.2)
    power_exponent: float = Field(ge=0, le=3)
    eight_bit: float = Field(gt=0, le=2)
    eight_bit_blackwell: float = Field(gt=0, le=2)
    attention: float = Field(gt=0, le=1.5)
    launch: float = Field(ge=0, le=1e-3)
    scale_up: float = Field(gt=0, le=1)
    overlap_data: float = Field(ge=0, le=1)
    overlap_tensor: float = Field(ge=0, le=1)
    immaturity: float = Field(ge=0, le=2)

    wave: float = Field(ge=0)
    depth: float = Field(ge=0)
    kernel_start: float = Field(ge=0)
    misaligned: float = Field(ge=0)
    memory: float = Field(gt=0, le=1)
    scale_out: float = Field(gt=0, le=1)
    latency: float = Field(ge=0)
    ring_latency: float = Field(ge=0)
    exponentials: float = Field(ge=0)
    flash1: float = Field(gt=0)
    foreign_kernel: float = Field(gt=0)
    exchange_host: float = Field(gt=0, le=1)
    exchange_rack: float = Field(gt=0, le=1)
    exchange_network: float = Field(gt=0, le=1)
    unfused_elementwise: float = Field(gt=0)
    plain_elementwise: float = Field(gt=0)
    compiled_elementwise: float = Field(gt=0)
    compiled_launch: float = Field(gt=0)
    graphs_launch: float = Field(gt=0)
    mature_years: float = Field(ge=0)
    tensor_hop: float = Field(ge=0)
    straggler: float = Field(ge=0)
    step_constant: float = Field(ge=0)
    edge_launches: float = Field(ge=0)
    power_reference_ampere: float = Field(gt=0)
    power_reference_hopper: float = Field(gt=0)
    power_reference_blackwell: float = Field(gt=0)


FITTED = (
    "sustained_ampere", "sustained_hopper", "sustained_blackwell", "power_exponent", "eight_bit", "attention", "launch",
    "scale_up", "overlap_data", "overlap_tensor",
)  # fmt: skip
"""The ten parameters that a fit changes; all others are stated."""


class Parameter(BaseModel):
    """One value of a calibration and where it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float
    unit: str
    kind: Literal["fitted", "stated"]
    source: str


class Calibration(BaseModel):
    """A set of parameters as a document: what it was fitted on, what it does not cover, and every value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    fitted_on: str
    parameters: dict[str, Parameter]

    def values(self) -> Parameters:
        """The plain values. Raises pydantic.ValidationError where one is missing or out of range."""
        return Parameters(**{name: item.value for name, item in self.parameters.items()})


@cache
def calibration(name: str = "global") -> Calibration:
    """A calibration of the package's library by name."""
    text = files("engine.calibrated").joinpath("data", f"{name}.json").read_text(encoding="utf-8")
    return Calibration.model_validate(json.loads(text))


@cache
def parameters(name: str = "global") -> Parameters:
    """The values of a calibration of the package's library."""
    return calibration(name).values()
