"""Question for DistIR's grid: a multilayer perceptron under data, horizontal and pipeline parallelism."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Accepts, Number, Text, Whole

__all__ = ["DistIRQuestion"]

MOST: Final = 2**31 - 1
MOST_ENTRIES: Final = 64
Size = Annotated[int, Whole(1, MOST)]


class DistIRQuestion(Document):
    """Question for every configuration of data (D), horizontal (H) and pipeline (P) parallelism, by DistIR."""

    models: Annotated[list[str] | None, Asked("Model sizes", option="model")] = Field(
        default=None,
        min_length=1,
        max_length=MOST_ENTRIES,
        description="Sizes: mlp-xs, mlp-small, mlp-medium, mlp-large, notebook or euromlsys21. [notebook]",
    )
    layers: Size | None = Field(default=None, description="Weights of the model, instead of the size's.")
    width: Size | None = Field(default=None, description="Rows and columns of each weight, instead of the size's.")
    batches: Annotated[list[Size] | None, Asked("Batches", option="batch")] = Field(
        default=None, min_length=1, max_length=MOST_ENTRIES, description="Samples of a step. [4096]"
    )
    devices: list[Size] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_ENTRIES,
        description="Numbers of devices, powers of two. [1,2,4,8,16,32]",
    )
    revision: str | None = Field(
        default=None, description="Revision of DistIR's simulator: R1, R2, R3, or EuroMLSys21. [R3]"
    )
    bandwidth_gbps: Annotated[
        Annotated[float, Number(1e-6, 1e9)] | None, Asked("Links", "Gbps", option="bandwidth", parameter="gbps")
    ] = Field(default=None, description="Between devices, in the units of the revision; the constants', or 25.")
    filtered: Annotated[bool, Asked("Weights in place", parameter="placed")] = Field(
        default=False, description="Count steps with weights already on their devices; R3 always does."
    )
    memory_limit_gib: Annotated[
        Annotated[float, Number(1e-9, 1e9)] | None, Asked("Memory", "GiB", parameter="limit")
    ] = Field(default=None, description="Memory of a device; no limit by default.")
    microbatches: Annotated[str, Text(400)] | None = Field(
        default=None, description="Rule for microbatches: all, R1 or R3; or numbers with commas, for figure-3. [all]"
    )
    show: Literal["top", "pareto", "figure-3", "figure-4", "measured"] = Field(
        default="top",
        description="Rows of the answer: the best, the Pareto front of throughput and memory, a figure of the paper, "
        "or measured and simulated steps.",
    )
    top: Annotated[int, Whole(1, 10_000)] = Field(default=10, description="Best of each model and batch.")
    constants: Annotated[dict[str, Any], Accepts("an object with constants by name")] | None = Field(
        default=None,
        description="Constants of a machine: revision, flops [FLOP/s], dram_bandwidth [bytes/s], launch_overhead [s], "
        "bandwidth_gbps, allreduce, datatype_bytes; others are the revision's.",
    )
    measurements: Annotated[str, Text(2_000_000, shortest=1)] | None = Field(
        default=None,
        description="Text of a CSV to fit the constants to: steps (world_size, num_layers, batch_size, hidden_dim, "
        "real_ms) or operations (op, devices, rows, inner, columns, seconds).",
    )
