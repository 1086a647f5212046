"""Results of a machine's microbenchmarks: timings and their device, as one document.

This is the seam between timing, which needs PyTorch and the machine, and analysis, which needs neither: samples are
stored in a file, and their analysis can be repeated, elsewhere or with other formulas.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from models.documents import Accepts, DocumentError, Number, Text, Whole, load_versioned, read_json, shown

__all__ = [
    "FORMAT",
    "Attention",
    "Device",
    "ExchangeSample",
    "LaunchSample",
    "MeasureError",
    "Product",
    "SampleTiming",
    "Samples",
    "Skipped",
    "Transfer",
    "load_samples",
    "samples_document",
    "samples_of",
]

FORMAT = "shardscape-samples/1"

Entry = TypeVar("Entry")
Count = Annotated[int, Whole(1, 2**40)]
Line = Annotated[str, Text(2_000, shortest=1)]
Short = Annotated[str, Text(200, shortest=1)]
Many = Annotated[tuple[Entry, ...], Field(strict=False, max_length=1_000)]


class MeasureError(DocumentError):
    """A measurement that cannot be made or used: no PyTorch, no such device, or a file that holds no samples."""


class _SampleEntity(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class SampleTiming(_SampleEntity):
    """One operation, timed often."""

    seconds: Annotated[float, Number(1e-12, 1e6)]
    """Median [s]."""
    spread: Annotated[float, Number(0, 1e9)]
    """Half the distance between the quartiles over the median [dimensionless]."""
    repeats: Count
    """Number of runs of the operation after the warm-up."""


class Device(_SampleEntity):
    """The accelerator that was measured, and with what."""

    kind: Literal["cpu", "cuda", "rocm"]
    name: Short
    generation: Annotated[str, Text(40, shortest=1)]
    """As in `hardware.Accelerator`: "hopper", "cdna3", "cpu"."""
    count: Count
    """Accelerators of this kind in the machine; 1 for a CPU."""
    memory_bytes: Count
    multiprocessors: Annotated[int, Whole(1, 2**20)] | None = None
    clock_hz: Annotated[float, Number(1e6, 1e11)] | None = None
    datatype: Literal["bfloat16", "float16", "float32"]
    """Widest measured type of matrix products, used for the model's 16 bits."""
    software: Line
    """Versions of PyTorch and the driver."""
    date: Annotated[str, Field(pattern=r"^[0-9]{4}-[01][0-9]-[0-3][0-9]$"), Accepts("a day such as 2026-11-20")]


class Product(_SampleEntity):
    """A product of [m, k] by [k, n]."""

    datatype: Literal["bfloat16", "float16", "float32", "float8"]
    m: Count
    n: Count
    k: Count
    time: SampleTiming

    @property
    def operations(self) -> float:
        """Multiplications and additions [FLOP]."""
        return 2.0 * self.m * self.n * self.k

    @property
    def rate(self) -> float:
        """Operations per second [FLOP/s]."""
        return self.operations / self.time.seconds


class Attention(_SampleEntity):
    """Causal attention of `batch` sequences, forward, and forward with backward."""

    kernel: Literal["flash2", "native"]
    """FlashAttention 2, or a kernel written for the generation."""
    heads: Count
    head_size: Count
    batch: Count
    sequence: Count
    """Tokens."""
    forward: SampleTiming
    both: SampleTiming
    """Forward and backward pass together."""


class Transfer(_SampleEntity):
    """A pass over memory: a copy, or the triad a = b + 3 c."""

    kind: Literal["copy", "triad"]
    moved: Count
    """Bytes read and written [bytes]."""
    time: SampleTiming

    @property
    def rate(self) -> float:
        """Bytes per second [bytes/s]."""
        return self.moved / self.time.seconds


class ExchangeSample(_SampleEntity):
    """A collective of a full buffer of `size` bytes among the accelerators of one machine."""

    kind: Literal["all_reduce", "all_gather"]
    ranks: Annotated[int, Whole(2, 2**20)]
    size: Count
    """Bytes of the whole buffer [bytes]."""
    time: SampleTiming

    @property
    def passes(self) -> float:
        """Passes over the buffer: an all-reduce is a reduce-scatter and an all-gather."""
        return 2.0 if self.kind == "all_reduce" else 1.0


class LaunchSample(_SampleEntity):
    """Time of operations too small to matter by themselves.

    `kernel`: host time per operator, one after another. `graph`: device time per kernel inside a captured graph.
    `block_forward`, `block`: host time of a tiny transformer block, forward, and forward with backward.
    """

    kind: Literal["kernel", "graph", "block_forward", "block"]
    time: SampleTiming


class Skipped(_SampleEntity):
    """Something that was not measured."""

    what: Line
    reason: Line


class Samples(_SampleEntity):
    """Everything that one run of the benchmarks found."""

    device: Device
    quick: bool
    """True for the small run, whose values are rougher."""
    products: Many[Product] = ()
    attentions: Many[Attention] = ()
    transfers: Many[Transfer] = ()
    exchanges: Many[ExchangeSample] = ()
    launches: Many[LaunchSample] = ()
    skipped: Many[Skipped] = ()
    remarks: Many[Line] = ()
    """Reasons to doubt the timings, such as other work on the machine."""


def samples_of(document: object, where: str = "the document") -> Samples:
    """Returns the samples that a parsed JSON document holds.

    Args:
        document: a parsed JSON value of any kind.
        where: name of the document in messages.

    Raises `MeasureError` naming the field at fault.
    """
    return load_versioned(document, where, FORMAT, "file of samples", Samples, MeasureError)


def load_samples(path: str | os.PathLike[str]) -> Samples:
    """Returns the samples in a JSON file.

    Args:
        path: of the file.

    Raises `MeasureError` for a file that cannot be read, and as `samples_of` does.
    """
    return samples_of(read_json(path, "file of samples", MeasureError), shown(os.fspath(path))[1:-1])


def samples_document(samples: Samples) -> dict[str, Any]:
    """Returns the samples as a JSON document, which `samples_of` turns into equal samples.

    Args:
        samples: the measurements.
    """
    return {"format": FORMAT, **samples.model_dump(mode="json", exclude_defaults=True)}
