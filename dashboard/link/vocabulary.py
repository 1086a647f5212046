"""Names of a link's parameters, and the sentences about meaningless ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from dashboard.link import scenario_parameters
from engine.columns import UnknownColumn, by_name
from models.documents import near_matches

__all__ = ["WORDS", "about", "learn", "refused", "unknown"]

_MOST_LISTED: Final = 8
_FEW: Final = 5
_MOST_TOLD: Final = 3
_SHOWN: Final = 40

_WORDS: Final = {
    **{name: name for name in scenario_parameters.NAMES},
    "cell": "cell",
    "id": "execution",
    "own": "your execution",
    "figures": "figures of",
    "run": "run",
    "run_from": "framework of your run",
    "run_measured": "your measurement",
    "run_measured_as": "unit of your measurement",
    "tokens": "tokens to train",
}
WORDS: Final[Mapping[str, str]] = MappingProxyType(_WORDS)
"""Every parameter that some page reads -> its description: the common ones, and the ones registered by `learn`."""

_MEANT: Final[Mapping[str, Sequence[str]]] = {
    "axes": ("map_x", "map_y"),
    "axis": ("map_x", "map_y"),
    "x": ("map_x",),
    "y": ("map_y",),
    "facet": ("map_facet",),
    "filter": ("results_where",),
    "filters": ("results_where",),
    "where": ("results_where",),
    "sort": ("results_sort",),
    "order": ("results_order",),
    "page": ("results_page",),
    "columns": ("results_columns",),
    "gpus": ("procs",),
    "num_procs": ("procs",),
    "datatype": ("type",),
    "dtype": ("type",),
    "batch_size": ("batch",),
    "max_batch_size": ("batch",),
    "cost_model": ("cost",),
}
"""Likely spellings of users -> our names of the parameters."""


def learn(parameters: Mapping[str, str]) -> None:
    """Adds the parameters that belong to one page.

    Args:
        parameters: name -> description.

    Raises:
        ValueError: another page already owns a parameter.
    """
    taken = sorted(_WORDS.keys() & parameters.keys())
    if taken:
        raise ValueError(f"parameters of the link with two owners: {', '.join(taken)}")
    _WORDS.update(parameters)


def refused(name: str, text: str, default: str, accepted: Collection[str] | re.Pattern[str]) -> str:
    """Returns the sentence about an invalid value, with valid ones and the value shown instead."""
    would = ""
    if not isinstance(accepted, re.Pattern):
        options = [option for option in accepted if option]
        near = near_matches(text, options)
        if near:
            would = f"; did you mean {' or '.join(near)}"
        elif len(options) <= _MOST_LISTED:
            would = f"; it must be {_join_options(options)}"
        else:
            would = f"; it may be {', '.join(options[:_FEW])} or one of {len(options) - _FEW} others"
    instead = f"Showing {_option_words(default)} instead." if default else "It is left out."
    return f"{about(name, text)}{would}. {instead}"


def about(name: str, text: str) -> str:
    """Returns how the sentence about a value that cannot be begins."""
    words = WORDS.get(name, name)
    return f"The link's {words if words == name else f'{words} ({name})'} cannot be {text[:_SHOWN]!r} here"


def unknown(names: Collection[str]) -> dict[str, str]:
    """Returns a sentence per name of a parameter that no page reads."""
    strange = [name for name in names if name not in WORDS]
    told = {
        name: f"The link's {name[:_SHOWN]!r} is unknown here and ignored{_suggest_names(name)}."
        for name in strange[:_MOST_TOLD]
    }
    if len(strange) > _MOST_TOLD:
        told[strange[_MOST_TOLD]] = f"{len(strange) - _MOST_TOLD:,} further names in the link are unknown here."
    return told


def _suggest_names(name: str) -> str:
    near = _MEANT.get(name.lower()) or near_matches(name, list(WORDS))
    return f"; did you mean {' or '.join(near)}" if near else ""


def _join_options(options: Sequence[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def _option_words(value: str) -> str:
    """A value as a reader knows it: the label of a column."""
    try:
        label = by_name(value).label
    except UnknownColumn:
        return value
    return f"{label} ({value})"
