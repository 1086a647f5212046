"""Schema of a study's document: models with weights, systems and edits of them, sizes, datatypes, batches, costs.

Names of models and systems may stand for whole documents; `engine.codesign.study` puts the documents in their place,
so that a study file is complete in itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from models.documents import Accepts, Number, Text, Whole, shown

__all__ = [
    "FORMAT",
    "MIX",
    "NEW_COST_ITEMS",
    "BatchRule",
    "Constraint",
    "CostItems",
    "Costs",
    "Edit",
    "Follow",
    "MixedModel",
    "StudyDocument",
    "middle_of",
]

FORMAT: Final = "shardscape-study/1"

MIX: Final = "mix"
"""Name of all models together."""

MOST_VALUES: Final = 100_000
"""Values of one edit, however they are given."""

Name = Annotated[str, Text(200, shortest=1)]
Document = str | dict[str, Any]
Positive = Annotated[float, Number(1e-12, 1e18)]
Amount = Annotated[float, Number(0, 1e12)]


class _StudyEntity(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, serialize_by_alias=True
    )


def _refusal(text: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{text}", {"text": text})


def _as_pair(value: Any) -> Any:
    """Accept one number as a range without width."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value, value]
    return value


def _check_order(ends: Any) -> Any:
    if isinstance(ends, list | tuple) and all(isinstance(each, int | float) for each in ends):
        if len(ends) not in (2, 3):
            raise _refusal(f"has {len(ends)} numbers; it must have two, low and high, or three: low, middle and high")
        if list(ends) != sorted(ends):
            order = "the first number must be the lower one" if len(ends) == 2 else "they must rise"
            raise _refusal(f"goes from {' over '.join(f'{each:g}' for each in ends[:-1])} to {ends[-1]:g}; {order}")
    return ends


Range = Annotated[
    tuple[Amount, ...],
    Field(strict=False),
    Accepts("a number from 0 to 1e12, a pair [low, high] or a triple [low, middle, high] of them"),
    BeforeValidator(_check_order),
    BeforeValidator(_as_pair),
]
"""Low and high value, or low, middle and high; where one number is given it is all of them."""


def middle_of(ends: tuple[float, ...]) -> float:
    """Return the middle of a range: its middle number, or half way between its ends.

    Args:
        ends: low and high, or low, middle and high.
    """
    return ends[1] if len(ends) == 3 else (ends[0] + ends[1]) / 2.0


def _as_object(value: Any) -> Any:
    """Accept the name of a model as the model with a weight of 1."""
    return {"model": value} if isinstance(value, str) else value


class MixedModel(_StudyEntity):
    """A model of the mix."""

    model: Annotated[Document, Accepts("the name or path of a model, or its whole document")]
    weight: Positive = 1.0
    """Its share of the tokens that the machine is to train, over the sum of all weights."""


class Edit(_StudyEntity):
    """One axis of the product: values of one What-if parameter, or of several that change together.

    Either `values`, or `from`, `to` and `count` with a `scale`; `relative` ones are multiples of what each system has.
    Values of several parameters are lists, one number per parameter.
    """

    parameter: Annotated[str | list[Name], Accepts("the name of a What-if parameter, or a list of such names")]
    values: (
        Annotated[list[float | list[float]], Field(max_length=MOST_VALUES), Accepts("a list of numbers, or of lists")]
        | None
    ) = None
    lowest: Annotated[float, Number(-1e18, 1e18)] | None = Field(default=None, alias="from")
    highest: Annotated[float, Number(-1e18, 1e18)] | None = Field(default=None, alias="to")
    count: Annotated[int, Whole(2, MOST_VALUES)] | None = None
    scale: Literal["linear", "log"] = "linear"
    relative: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [self.lowest, self.highest, self.count]
        if (self.values is None) == all(each is None for each in given):
            raise _refusal("must have either values, or from, to and count")
        if self.values is not None:
            if any(each is not None for each in given):
                raise _refusal("has values and a range too; it must have one of them")
            return self._listed(self.values)
        if any(each is None for each in given):
            raise _refusal("has a part of a range; it must have from, to and count")
        if len(self.names) > 1:
            raise _refusal("is about several parameters, which take values and no range")
        low, high = self.range
        if low >= high:
            raise _refusal(f"goes from {low:g} to {high:g}; from must be below to")
        if self.scale == "log" and low <= 0:
            raise _refusal(f"has a log scale from {low:g}; from must be above 0 there")
        if len(set(self.rows)) < len(self.rows):
            raise _refusal(f"goes from {low!r} to {high!r}, too close for {len(self.rows):,} values; take fewer")
        return self

    def _listed(self, values: list[float | list[float]]) -> Self:
        names = self.names
        if not names or len(set(names)) < len(names):
            raise _refusal("must name one parameter, or several different ones")
        if not values:
            raise _refusal("has no values, so that the study would be empty; it must have at least one")
        for row in values:
            numbers = row if isinstance(row, list) else [row]
            if len(numbers) != len(names) or isinstance(row, list) != isinstance(self.parameter, list):
                wanted = "a number" if isinstance(self.parameter, str) else f"a list of {len(names)} numbers"
                raise _refusal(f"has the value {shown(row)}; each must be {wanted}")
            if not all(math.isfinite(each) for each in numbers):
                raise _refusal("has a value that is no finite number")
        rows = [tuple(row) if isinstance(row, list) else (row,) for row in values]
        if len(set(rows)) < len(rows):
            raise _refusal("has a value twice, which would be counted twice; each must be there once")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters that it changes."""
        return (self.parameter,) if isinstance(self.parameter, str) else tuple(self.parameter)

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest value, where it is a range."""
        assert self.lowest is not None
        assert self.highest is not None
        return self.lowest, self.highest

    @cached_property
    def rows(self) -> tuple[tuple[float, ...], ...]:
        """The values, each a tuple with one number per parameter."""
        if self.values is not None:
            return tuple(tuple(row) if isinstance(row, list) else (float(row),) for row in self.values)
        (low, high), count = self.range, self.count or 2
        steps = [step / (count - 1) for step in range(count)]
        if self.scale == "log":
            found = [low * (high / low) ** step for step in steps]
        else:
            found = [low + (high - low) * step for step in steps]
        # Twelve digits: a range that was written down and read again has the same values everywhere.
        return tuple((float(f"{value:.12g}"),) for value in (low, *found[1:-1], high))


class Follow(_StudyEntity):
    """A parameter that follows another one: its own value times (the other's value / the other's own) ** exponent."""

    parameter: Name
    follows: Name
    exponent: Annotated[float, Number(-8, 8)] = 1.0


class BatchRule(_StudyEntity):
    """Largest size of a step: a number of samples, or samples per processor."""

    samples: Annotated[int, Whole(1, 2**40)] | None = None
    per_processor: Positive | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.samples is None) == (self.per_processor is None):
            raise _refusal("must have either samples or per_processor")
        return self

    def batch(self, processors: int) -> int:
        """Returns the largest batch of a machine [samples]."""
        if self.samples is not None:
            return self.samples
        assert self.per_processor is not None
        return max(1, round(self.per_processor * processors))


def _as_rule(value: Any) -> Any:
    return {"samples": value} if isinstance(value, int) and not isinstance(value, bool) else value


class CostItems(_StudyEntity):
    """Costs of the parts of a machine in one unit, money [USD] or power [W]; each has a low, middle and high value."""

    processor: Range | None = None
    """Price of one processor without the memory, rates and parts below; None is the system's design power, for power.
    """
    tflops: Range = (0.0, 0.0)
    """Price of 1e12 FLOP/s of a processor's matrix peak in the study's datatype."""
    tflops_16_bit: Range = (0.0, 0.0)
    """Price of 1e12 FLOP/s of a processor's matrix peak in 16 bit, for any datatype of the study: the price of a
    processor does not depend on its use."""
    mem1_gib: Range = (0.0, 0.0)
    """Price of 2**30 bytes of a processor's own memory."""
    mem1_gb_per_s: Range = (0.0, 0.0)
    """Price of 1e9 bytes/s of that memory."""
    mem2_gib: Range = (0.0, 0.0)
    """Price of 2**30 bytes of a processor's share of the memory to offload to."""
    mem2_gb_per_s: Range = (0.0, 0.0)
    """Price of 1e9 bytes/s of the link to that memory."""
    network_gb_per_s: Annotated[list[Range], Field(max_length=8)] = []
    """Prices of 1e9 bytes/s of a processor, by network tier from the innermost outwards; the last counts for all
    beyond.
    """
    network_size: Annotated[list[Range], Field(max_length=8)] = []
    """Prices of one more processor in every domain of a network tier, for each processor, from the innermost tier
    outwards; tiers beyond the list have no such price."""
    host: Range = (0.0, 0.0)
    """Price of one whole host."""
    switch: Range = (0.0, 0.0)
    """Price of one switch of the outermost network, with its cables."""


NEW_COST_ITEMS: Final = ("tflops_16_bit", "network_size")
"""Items that studies of earlier versions do not have; unset, they are no part of a study's key."""


class Costs(_StudyEntity):
    """The inputs from which price and power of a design follow, each visible and editable."""

    preset: Annotated[str, Text(100)] = ""
    """Name of the preset that fills in missing values."""
    usd: CostItems = CostItems()
    watts: CostItems = CostItems()
    usd_per_processor_hour: Range | None = None
    """Rent of a processor [USD/h]; None is the range of prices recorded with each system."""
    processors_per_host: Positive = 8.0
    processors_per_switch: Positive = 64.0
    power_share: Positive | None = None
    """Draw of a processor with its share of the server over its design power, where watts.processor is the system's."""
    pue: Annotated[float, Number(1, 10)] | None = None
    """Draw of the building over that of its computers."""
    usd_per_kwh: Range = (0.0, 0.0)
    sources: dict[Name, Annotated[str, Text(2_000)]] = {}
    """Source of each value, by its path in this document."""


class Constraint(_StudyEntity):
    """A bound on a quantity: no answer may be below `at_least` or above `at_most`."""

    quantity: Name
    at_least: Annotated[float, Number(-1e300, 1e300)] | None = None
    at_most: Annotated[float, Number(-1e300, 1e300)] | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise _refusal("must have at_least or at_most")
        return self


class StudyDocument(_StudyEntity):
    """A study: a product of models, systems, edits of them, sizes, datatypes and batches, and its questions."""

    name: Annotated[str, Text(200)] = ""
    description: Annotated[str, Text(4_000)] = ""
    models: Annotated[list[Annotated[MixedModel, BeforeValidator(_as_object)]], Field(min_length=1, max_length=1_000)]
    systems: Annotated[
        list[Annotated[Document, Accepts("the name or path of a system, or its whole document")]],
        Field(min_length=1, max_length=1_000),
    ]
    edits: Annotated[list[Edit], Field(max_length=32)] = []
    follow: Annotated[list[Follow], Field(max_length=32)] = []
    sizes: Annotated[list[Annotated[int, Whole(1, 2**40)]], Field(min_length=1, max_length=MOST_VALUES)]
    datatypes: Annotated[list[Name], Field(min_length=1, max_length=64)]
    batches: Annotated[list[Annotated[BatchRule, BeforeValidator(_as_rule)]], Field(min_length=1, max_length=1_000)]
    limits: dict[str, Any] = {}
    cost_model: Name | None = None
    calibration: Annotated[Document, Accepts("the name or path of a calibration, or its whole document")] | None = None
    evaluate: Literal["optimum", "exploration"] = "optimum"
    statistics: Annotated[list[Name], Field(max_length=128)] = []
    """Further statistics of each best execution that are kept, by their names in the register."""
    tokens: Positive = 1e12
    """Tokens of the training run that times, energies and rents are about."""
    costs: Costs = Costs()
    objectives: Annotated[list[Name], Field(min_length=1, max_length=3)] = ["tokens_per_s", "usd"]
    constraints: Annotated[list[Constraint], Field(max_length=64)] = []
    prune: bool = False
    """If true, designs that bounds prove to lose are skipped."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        for what in ("sizes", "datatypes", "batches", "statistics", "objectives"):
            values = getattr(self, what)
            if len(set(values)) < len(values):
                raise _refusal(f"has one of its {what} twice, which would be counted twice; each must be there once")
        return self


def given_fields(entity: BaseModel) -> Mapping[str, Any]:
    """Return the fields of an entity that a document gave, without defaults.

    Args:
        entity: a part of a study's document.
    """
    return {name: getattr(entity, name) for name in entity.model_fields_set}
