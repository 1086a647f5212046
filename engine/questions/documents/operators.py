"""Question about operators: how the contractions inside layers are split over a mesh of devices (CFP, Alpa)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document, Named
from models.documents import Number, Whole

__all__ = ["MOST_DEVICES", "OperatorsQuestion", "OuterAxis", "network_rates"]

MOST_DEVICES: Final = 4_096
Devices = Annotated[int, Whole(1, MOST_DEVICES)]
Bandwidth = Annotated[float, Number(1e-6, 1e9)]


class OuterAxis(Document):
    """The axis that joins groups of devices, as the network between nodes does."""

    devices: Devices = Field(description="How many groups.")
    bandwidth_gb_per_s: Bandwidth = Field(description="What a device sends in a ring [GB/s].")
    all_to_all_gb_per_s: Bandwidth | None = None
    alpha_s: Annotated[float, Number(0, 10)] = 0.0

    def rates(self) -> dict[str, Any]:
        """Return the axis as `engine.planners.intra_operator.mesh_of` takes it."""
        return {
            "devices": self.devices,
            **network_rates(self.bandwidth_gb_per_s, self.all_to_all_gb_per_s, self.alpha_s),
        }


def network_rates(bandwidth: float, exchange: float | None, alpha: float) -> dict[str, float]:
    """Return the rates of a network as `engine.planners.intra_operator.mesh_of` takes them.

    Args:
        bandwidth: of a ring [GB/s].
        exchange: of an all-to-all [GB/s]; None for the same.
        alpha: start of a collective [s].
    """
    found = {"bandwidth": bandwidth * 1e9, "alpha": alpha}
    return found if exchange is None else {**found, "all_to_all_bandwidth": exchange * 1e9}


class OperatorsQuestion(Document):
    """Question for the split of contractions inside layers over the devices of one or two mesh axes."""

    model: Annotated[Named, Asked("Model")] = Field(
        description='A published model, such as "gpt F", "moe E" or "llama", or a model of the library.'
    )
    devices: Annotated[Devices, Asked("Devices")] = Field(
        description="Devices that share every layer; those of several networks are a mesh of two axes."
    )
    batch: Annotated[int, Whole(1, 10**6), Asked("Batch", "sequences")] = Field(
        default=16, description="Sequences of a step."
    )
    layers: Annotated[Annotated[int, Whole(1, 256)] | None, Asked("Layers")] = Field(
        default=None, description="Layers to plan; the model's by default."
    )
    memory_limit_gib: Annotated[
        Annotated[float, Number(1e-6, 1e6)] | None, Asked("Memory limit", "GiB", parameter="limit")
    ] = Field(default=None, description="Memory of a device; no limit by default.")
    system: Annotated[Named | None, Asked("System")] = Field(
        default=None, description="System whose networks the mesh is, with its rates."
    )
    tiers: Literal[1, 2] = Field(
        default=1, description="Mesh axes of a system: 1 its first network, 2 that and the network between such groups."
    )
    datatype: Annotated[str, Asked("Datatype of products", parameter="type")] = Field(
        default="bfloat16", description="Datatype of a system's matrix rate."
    )
    matrix_rate_tflops: Annotated[float, Number(1e-6, 1e9), Asked("Matrix rate", "TFLOP/s", parameter="rate")] = Field(
        default=83.8, description="Sustained rate of a device without a system; by default as CFP measured it."
    )
    bandwidth_gb_per_s: Annotated[Bandwidth, Asked("Bandwidth", "GB/s", parameter="bandwidth")] = Field(
        default=20.65, description="Sent by a device in a ring, without a system; by default as CFP measured it."
    )
    all_to_all_gb_per_s: Annotated[Bandwidth | None, Asked("All-to-all", "GB/s", parameter="exchange")] = Field(
        default=None, description="Sent by a device in an all-to-all, without a system; as in a ring by default."
    )
    alpha_s: Annotated[
        float, Number(0, 10), Asked("Start of a collective", "s", parameter="alpha", parameter_unit="µs")
    ] = Field(default=0.0, description="Time of a collective besides its bytes, without a system.")
    outer: OuterAxis | None = Field(
        default=None, description="Without a system: the outer axis of a mesh of two; `devices` are those of both."
    )
    element_bytes: Annotated[
        Annotated[float, Number(0.125, 16)] | None, Asked("Width of an element", "bytes", parameter="width")
    ] = Field(default=None, description="Bytes of an element; 4 for published models, 2 for library models by default.")
    state_bytes: Annotated[float, Number(0.125, 64), Asked("Bytes of a parameter", parameter="state")] = Field(
        default=16.0, description="A parameter with its gradient and optimizer state."
    )
    gradient_bytes: Annotated[Annotated[float, Number(0.125, 16)] | None, Asked("Width of gradients", "bytes")] = Field(
        default=None, description="Bytes of an element of gradients; an element's width by default."
    )
    zero: bool = Field(default=False, description="Split gradients and optimizer state (ZeRO).")
    fsdp: bool = Field(default=False, description="Split weights, too (FSDP, ZeRO stage 3).")
    sequence_parallel: Annotated[bool | None, Asked("Sequence parallel", parameter="sequence")] = Field(
        default=None,
        description="Split outputs of row-parallel products by tokens: a reduce-scatter replaces the all-reduce. "
        "By default on for library models.",
    )
    recompute: Annotated[
        Literal["none", "selective", "full"],
        Asked("Recompute", words={"none": "nothing", "selective": "attention", "full": "the whole forward pass"}),
    ] = Field(default="none", description="What the backward pass computes again; selective is attention.")
    accumulation: Annotated[int, Whole(1, 10**6), Asked("Microbatches", parameter="microbatches")] = Field(
        default=1, description="Microbatches of a step; their gradients are added up and exchanged once."
    )
    annotations: bool = Field(
        default=False, description="Give the sharding of every weight and activation of the chosen plan."
    )
    top: Annotated[int, Whole(1, 1_000)] = Field(default=10, description="Vectors to list, the best first.")
