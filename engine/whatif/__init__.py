"""Optimises the space again for other hardware, another model or another number of processors."""

from engine.whatif.amounts import parse_amount, parse_amounts, unit_example
from engine.whatif.parameters import ChangeError, Parameter, changed, otherwise, parameter, parameters, system_changes
from engine.whatif.search import Choice, Point
from engine.whatif.studies import (
    Answer,
    PointSequence,
    applicable,
    coarse_first,
    reoptimise,
    sensitivity,
    size_range,
    sizes,
    sizes_between,
    sweep,
    sweep_two,
    values_around,
)

__all__ = [
    "Answer",
    "ChangeError",
    "Choice",
    "Parameter",
    "Point",
    "PointSequence",
    "applicable",
    "changed",
    "coarse_first",
    "otherwise",
    "parameter",
    "parameters",
    "parse_amount",
    "parse_amounts",
    "reoptimise",
    "sensitivity",
    "size_range",
    "sizes",
    "sizes_between",
    "sweep",
    "sweep_two",
    "system_changes",
    "unit_example",
    "values_around",
]
