"""Schema of a system: processors, two memory tiers and a list of networks, with the source of every number.

Validation aliases are Calculon's keys: one schema reads both formats, ours by name and Calculon's by alias.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Annotated, Any, Final, Literal, NoReturn, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from models import datatypes
from models.documents import Accepts, Change, Number, Text, Whole

Value = TypeVar("Value")

GIB = 2.0**30
"""Bytes of a gibibyte."""

OPERATIONS = ("p2p", "reduce_scatter", "all_gather", "all_reduce")
"""The collectives every network has to describe, under Calculon's names."""


class FrozenDict(dict[str, Value]):
    """A dictionary that does not change, so that a system can be shared, hashed and sent to other processes."""

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError("A system does not change; make a new one from a changed document.")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[Value]], tuple[dict[str, Value]]]:
        return FrozenDict, (dict(self),)


def _covers_zero(table: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    if not any(threshold == 0 for threshold, _ in table):
        raise PydanticCustomError(
            "refused",
            "does not reach down to 0, so operations of no size would have no efficiency; end it with [0, efficiency]",
        )
    return table


def _strictly_decreasing(table: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    for (above, _), (below, _) in pairwise(table):
        if below >= above:
            raise PydanticCustomError(
                "refused",
                "has threshold {below} after {above}; thresholds of a processor must strictly decrease",
                {"below": f"{below:g}", "above": f"{above:g}"},
            )
    return table


Step = Annotated[
    tuple[Annotated[float, Number(0, 1e12)], Annotated[float, Number(1e-9, 1)]],
    Field(strict=False),
    Accepts("a pair [threshold, efficiency], the threshold from 0 to 1e12 and the efficiency from 1e-9 to 1"),
]
EfficiencyTable = Annotated[
    tuple[Step, ...], Field(strict=False, min_length=1, max_length=1_000), AfterValidator(_covers_zero)
]
Positive = Annotated[float, Number(1e-9, 1e15)]
Price = Annotated[float, Number(0, 1e6)]
Line = Annotated[str, Text(2_000)]
Lines = Annotated[tuple[Line, ...], Field(strict=False, max_length=200)]


class _SystemEntity(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, validate_by_name=True, validate_by_alias=False
    )


class Processor(_SystemEntity):
    """One compute engine for one datatype: a peak rate and how much of it an operation of some size reaches."""

    tflops: Positive
    """Peak rate, dense [1e12 FLOP/s]."""
    gflops_efficiency: Annotated[EfficiencyTable, AfterValidator(_strictly_decreasing)]
    """(threshold [1e9 FLOP], efficiency): the first entry whose threshold the operation reaches counts."""


class Memory(_SystemEntity):
    """A memory tier. Capacity 0 means no such tier: bandwidth may then be 0 too, and nothing is ever moved."""

    capacity_gib: Annotated[float, Number(0, 1e15)] = Field(validation_alias="GiB", serialization_alias="GiB")
    """Capacity [2**30 bytes]."""
    bandwidth_gb_per_s: Annotated[float, Number(0, 1e15)] = Field(validation_alias="GBps", serialization_alias="GBps")
    """Bandwidth [1e9 bytes/s]."""
    mb_efficiency: EfficiencyTable = Field(validation_alias="MB_efficiency", serialization_alias="MB_efficiency")
    """(threshold [1e6 bytes], efficiency), in any order: the first listed that the transfer reaches counts."""

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.capacity_gib > 0 and self.bandwidth_gb_per_s < 1e-9:
            raise PydanticCustomError(
                "refused",
                "has a bandwidth of {bandwidth} GB/s behind a capacity of {capacity} GiB; "
                "the bandwidth must be above 0, or the capacity 0",
                {"bandwidth": f"{self.bandwidth_gb_per_s:g}", "capacity": f"{self.capacity_gib:g}"},
            )
        return self


def _pair_as_object(value: Any) -> Any:
    """Calculon writes an operation as [scalar, offset]."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return {"scalar": value[0], "offset": value[1]}
    return value


class Operation(_SystemEntity):
    """Bytes that a collective among n processors moves over a network: `s * scalar * (1 + offset / n)`."""

    scalar: Annotated[float, Number(1e-9, 1e9)]
    offset: Annotated[float, Number(-2, 1e9)] | None = None
    """`None` counts as 0. At least -2, since with two processors anything below moves a negative number of bytes."""


def _all_operations(operations: Mapping[str, Operation]) -> Mapping[str, Operation]:
    wrong = [f"lacks '{name}'" for name in OPERATIONS if name not in operations]
    wrong += [f"has the unknown operation {name[:60]!r}" for name in operations if name not in OPERATIONS]
    if wrong:
        raise PydanticCustomError(
            "refused", "{wrong}; it must have {all}", {"wrong": wrong[0], "all": ", ".join(OPERATIONS)}
        )
    return FrozenDict(operations)


def _is_unset(value: object) -> bool:
    return not value


NETWORK_NAME = re.compile(r"(?!\d+$)[^\W_]([^\W_]|[ ./+()-])*")
"""Names of networks stand in labels, where signs of Markdown and numbers alone would be read as something else."""


def _check_name(name: str) -> str:
    if name and NETWORK_NAME.fullmatch(name) is None:
        raise PydanticCustomError(
            "refused",
            "is {name}; the name of a network begins with a letter or a digit, and has only these, spaces and "
            ". / + ( ) -, not a number alone",
            {"name": repr(name)},
        )
    return name


class Network(_SystemEntity):
    """One tier of the interconnect, which links `size` processors at equal rates."""

    bandwidth_gb_per_s: Positive = Field(validation_alias="bandwidth", serialization_alias="bandwidth")
    """Rate per processor and direction [1e9 bytes/s]."""
    efficiency: Annotated[float, Number(1e-9, 1)]
    """Share of the bandwidth that collectives reach."""
    size: Annotated[int, Whole(1, 2**40)]
    """Processors within one such network."""
    latency_s: Annotated[float, Number(0, 1e6)] = Field(validation_alias="latency", serialization_alias="latency")
    """Time that any operation takes before the first byte [s]."""
    operations: Annotated[
        Mapping[str, Annotated[Operation, BeforeValidator(_pair_as_object)]], AfterValidator(_all_operations)
    ] = Field(validation_alias="ops", serialization_alias="ops")
    must_be_filled: bool
    """True if the parallelism placed here must divide `size`."""
    processor_usage: Annotated[float, Number(0, 1 - 1e-9)]
    """Share of the processor's compute that communication takes while it overlaps with computation."""
    name: Annotated[str, Text(40), AfterValidator(_check_name)] = Field(default="", exclude_if=_is_unset)
    """Common name, such as "PCIe"; empty for the usual name of a network in this place (`hardware.network_names`)."""
    within_node: bool = Field(default=False, exclude_if=_is_unset)
    """True if a node has this network inside. The innermost network always is inside, whether it says so or not."""


def _check_datatypes(engines: Mapping[str, Processor]) -> Mapping[str, Processor]:
    if not engines:
        raise PydanticCustomError("refused", "has no datatype; it must have at least one, such as 'float16'")
    return FrozenDict(engines)


Engines = Annotated[
    Mapping[Annotated[str, Text(40, shortest=1)], Processor], Field(max_length=64), AfterValidator(_check_datatypes)
]


class Assumption(_SystemEntity):
    """A mark on values that no datasheet states: the origin of the value, and the reason."""

    field: Annotated[str, Text(200, shortest=1)]
    """Path into the system, such as "networks.0.efficiency"; * means every key or index."""
    basis: Annotated[str, Text(2_000, shortest=1)]
    """Source of the value."""


USUAL_EXPONENTIALS: Final = 16
"""Exponentials of a multiprocessor per clock on most accelerators."""


class Accelerator(_SystemEntity):
    """Datasheet facts of the processor that Calculon's recipe does not read."""

    name: Annotated[str, Text(100, shortest=1)]
    """The maker's name with the board's variant, such as "H100-80GB-SXM"."""
    generation: Annotated[str, Text(40, shortest=1)]
    """The maker's name of the architecture, in lower case: "hopper", "cdna3", "tpu v5p"."""
    tdp_w: Annotated[float, Number(1e-3, 1e6)] | None = None
    """Power the board is designed for [W]; `None` where it is not published."""
    tfloat32_tflops: Annotated[float, Number(1e-9, 1e15)] | None = None
    """Dense peak of float32 products rounded to 19 bits [1e12 FLOP/s]; `None` where there is no such mode."""
    multiprocessors: Annotated[int, Whole(1, 2**20)] | None = None
    """Streaming multiprocessors or compute units; `None` where the architecture has no such thing."""
    clock_ghz: Annotated[float, Number(1e-3, 1e3)] | None = None
    """Boost clock of these [1e9 / s]."""
    exponentials_per_clock: Annotated[int, Whole(1, 1024), Field(exclude_if=USUAL_EXPONENTIALS.__eq__)] = (
        USUAL_EXPONENTIALS
    )
    """Exponentials that one of them computes per clock: 16 on most, see "special functions" in the CUDA programming
    guide, throughput of arithmetic instructions."""
    fused_attention: Annotated[bool, Field(exclude_if=bool)] = True
    """True if frameworks have fused attention for it, such as FlashAttention; otherwise they write out the scores by
    default."""
    usd_per_h: Annotated[tuple[Price, Price], Field(strict=False), Accepts("a pair [lowest, highest]")] | None = None
    """Range of cloud prices seen [USD per hour]; `None` where none was recorded."""
    usd_source: Line = ""
    """Source and date of the prices."""


class System(_SystemEntity):
    """A machine: compute, memory and networks of each processor, and the source of every number.

    Immutable and hashable.
    """

    name: Annotated[str, Text(255, shortest=1)]
    title: Line = ""
    source: Line = ""
    """Source of the numbers."""
    matrix: Engines
    """Engine for matrix multiplications, by datatype. `rate_name` adds datatypes of `models.datatypes` that run at one
    of these rates. A rate under another name is kept with the document, and no cost model computes in it."""
    vector: Engines
    """Engine for everything else, by datatype; the same datatypes as `matrix`."""
    mem1: Memory
    """Memory next to the processor."""
    mem2: Memory
    """Memory to offload to: capacity per processor, bandwidth of the link to it per direction."""
    processing_mode: Literal["roofline", "no_overlap"]
    """Overlap of computing and moving data within an operation: the longer counts, or both add up."""
    networks: Annotated[tuple[Network, ...], Field(strict=False, min_length=1, max_length=8)]
    """From the innermost tier outwards."""
    accelerator: Accelerator | None = None
    """Further facts of the processor; `None` where none are recorded."""
    cost_model: Annotated[str, Text(60, shortest=1)] = "calibrated"
    """The cost model that the figures are meant for, which is the default. Calculon's own descriptions are `calculon`:
    their efficiencies are part of that model. Which names there are is not known here."""
    assumptions: Annotated[tuple[Assumption, ...], Field(strict=False, max_length=500)] = ()
    """Every value that is assumed rather than read, marked."""
    unverified_fields: Lines = ()
    """Published values that were not seen in the cited source: paths, each with an optional ": remark"."""
    notes: Lines = ()
    derived_from: Annotated[str, Text(255)] = ""
    """Name of the system that this one is an edited copy of; empty for an original."""
    changes: Annotated[tuple[Change, ...], Field(strict=False, max_length=1_000)] = ()
    """Every field in which it differs from that one."""

    @model_validator(mode="after")
    def _could_run(self) -> Self:
        if self.matrix.keys() != self.vector.keys():
            raise PydanticCustomError(
                "refused",
                "has the matrix datatypes {matrix} but the vector datatypes {vector}; they must be the same",
                {"matrix": ", ".join(sorted(self.matrix)), "vector": ", ".join(sorted(self.vector))},
            )
        if self.mem1.capacity_gib == 0:
            raise PydanticCustomError("refused", "has a mem1 of 0 GiB; nothing could run, it must be above 0")
        for tier, (inner, outer) in enumerate(pairwise(self.networks[1:]), start=2):
            if outer.within_node and not inner.within_node:
                raise PydanticCustomError(
                    "refused",
                    "has networks.{outer} within a node, but networks.{inner} is not; what is inside another network "
                    "of a node must be within the node too",
                    {"outer": tier, "inner": tier - 1},
                )
        return self

    @property
    def datatypes(self) -> tuple[str, ...]:
        """The datatypes whose rates the document states, in its order."""
        return tuple(self.matrix)

    @property
    def offered_datatypes(self) -> tuple[str, ...]:
        """The datatypes this system computes in: stated ones first, then others in the order of the register."""
        derived = (each.name for each in datatypes.for_products() if each.name not in self.matrix)
        return (*self.matrix, *(name for name in derived if self.rate_name(name)))

    def rate_name(self, datatype: str) -> str | None:
        """Return the datatype under which `matrix` states the rate of products in a datatype.

        That is the datatype itself where the document states it. Otherwise the register says at whose rate a chip of
        this generation computes in it. None where the system does not compute in it.

        Args:
            datatype: any name.
        """
        if datatype in self.matrix:
            return datatype
        if self.accelerator is None or not datatypes.is_known(datatype):
            return None
        entry = datatypes.named(datatype)
        if self.accelerator.generation not in entry.generations:
            return None
        return next((name for name in entry.rates_of if name in self.matrix), None)

    def has_rate(self, datatype: str) -> bool:
        """Return whether the system computes in a datatype.

        Args:
            datatype: any name.
        """
        return self.rate_name(datatype) is not None

    def closest_datatype(self, wanted: str, accepted: Collection[str] | None = None) -> str:
        """Return the datatype that stands in for another: itself, one of the same width, or the first that there is.

        Args:
            wanted: any name.
            accepted: datatypes that may be chosen, for example by a cost model; all by default.

        Raises:
            ValueError: the system computes in none of the accepted datatypes.
        """
        offered = [name for name in self.offered_datatypes if accepted is None or name in accepted]
        if not offered:
            raise ValueError(f"{self.name} computes in none of {', '.join(accepted or ())}.")
        if wanted in offered or not datatypes.is_known(wanted):
            return wanted if wanted in offered else offered[0]
        bits = datatypes.named(wanted).bits
        return next((name for name in offered if datatypes.named(name).bits == bits), offered[0])

    def matrix_rate(self, datatype: str) -> Processor:
        """Return the engine for matrix multiplications in a datatype.

        Args:
            datatype: one of `offered_datatypes`.

        Raises:
            KeyError: the system does not compute in it.
        """
        return self.matrix[self.rate_name(datatype) or datatype]

    def peak_tflops(self, datatype: str) -> float:
        """Return the dense peak of matrix products in a datatype [1e12 FLOP/s]; 0 if the system does not compute in it.

        Args:
            datatype: any name.
        """
        if datatype == "tf32" and datatype not in self.matrix and self.accelerator is not None:
            return self.accelerator.tfloat32_tflops or 0.0
        return self.matrix_rate(datatype).tflops if self.has_rate(datatype) else 0.0

    @property
    def node_size(self) -> int:
        """Processors of a node: a host, or a rack that is one NVLink domain. The outermost network within it joins
        them."""
        return [network for tier, network in enumerate(self.networks) if tier == 0 or network.within_node][-1].size

    @property
    def tiers(self) -> int:
        """Number of networks."""
        return len(self.networks)

    @property
    def reaches(self) -> tuple[int, ...]:
        """Processors that each network joins, innermost first. A network further out joins at least as many as those
        inside it, also where it is listed as smaller."""
        return tuple(accumulate((network.size for network in self.networks), max))

    @property
    def reach(self) -> int:
        """Processors that the networks join together, at most."""
        return max(network.size for network in self.networks)

    def network_at(self, tier: int) -> Network:
        """Returns the network that an execution's `tensor_par_net`, `pipeline_par_net` or `data_par_net` names.

        Args:
            tier: position, 0 for the innermost.
        """
        return self.networks[tier]

    def tier_spanning(self, processors: int) -> int:
        """Returns the position of the innermost network that joins a group of processors, 0 for the innermost of all.

        A group larger than all networks gets the outermost: whether it can run at all is the caller's question, see
        `reach`.

        Args:
            processors: of the group, as many as lie between its first and its last [processors].
        """
        return min(bisect_left(self.reaches, processors), self.tiers - 1)

    def tiers_spanning(self, processors: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Returns `tier_spanning` of many groups, but the number of networks for a group larger than all of them.

        Args:
            processors: of the groups, as for `tier_spanning` [any shape] [processors].
        """
        return np.searchsorted(self.reaches, processors).astype(np.int64)

    def network_spanning(self, processors: int) -> Network:
        """Returns the network that bounds the traffic of a group of processors, see `tier_spanning`.

        Args:
            processors: of the group [processors].
        """
        return self.networks[self.tier_spanning(processors)]

    def networks_below(self, processors: int) -> tuple[Network, ...]:
        """Returns the networks inside the one that spans a group of processors, innermost first: each joins a part of
        the group.

        Args:
            processors: of the group [processors].
        """
        return self.networks[: self.tier_spanning(processors)]

    def network_between_nodes(self, processors: int) -> Network:
        """Returns the network between the nodes of a cluster; the outermost where all networks are within a node.

        Args:
            processors: of the cluster, also where they are fewer than a node has [processors].
        """
        return self.network_spanning(max(processors, self.node_size + 1))

    def assumed_values(self) -> tuple[tuple[str, Any, str], ...]:
        """Returns (path, value, basis) of every assumed value, with the * in paths filled in.

        A mark on something that this system does not have, left over from a system it was made from, gives nothing.
        """
        return tuple(
            (path, value, assumption.basis)
            for assumption in self.assumptions
            for path, value in self.values_at(assumption.field)
        )

    def values_at(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yields every (path, value) that a path such as "matrix.*.tflops" leads to; none where it leads nowhere."""
        found: list[tuple[str, Any]] = [("", self)]
        for part in path.split("."):
            found = [
                (f"{prefix}.{key}".lstrip("."), child)
                for prefix, value in found
                for key, child in _child_items(value)
                if part in ("*", key)
            ]
        yield from found


def _child_items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        yield from value
    elif isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, tuple):
        yield from ((str(index), child) for index, child in enumerate(value))
