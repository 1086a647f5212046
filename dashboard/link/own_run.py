"""A person's own run in links: its execution as compact text, the framework that starts it, and a measured figure.

An execution travels by its values, not by its number in a space, so that it stays the same when the scenario changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.link.measured import MeasuredLink
from engine.columns import ALL_FIELDS
from engine.launch import FRAMEWORKS, LaunchError, evaluable
from engine.questions.fields import Asked

__all__ = [
    "OwnRunLink",
    "OwnRunView",
    "execution_from_text",
    "execution_to_text",
    "forget_own_run",
    "own_run_parameters",
    "parse_own_run",
]

_REQUIRED: Final = ("tensor_par", "pipeline_par", "data_par", "batch_size", "microbatch_size")
_ALWAYS: Final = (*_REQUIRED, "num_procs", "datatype", "schedule", "zero_stage", "optimizer_sharding")
"""Fields that are always stated: those without a default, and those whose default follows from others."""
_TEXT: Final = re.compile(r"[\w:;.,|*()+\-]{0,1500}")
_COLUMNS: Final = {column.name: column for column in ALL_FIELDS}
_TITLES: Final = {name: framework.title for name, framework in FRAMEWORKS.items()}
_WHOLE: Final = re.compile(r"\d{1,10}")
_SWITCH: Final = {"on": True, "off": False}


class OwnRunLink(MeasuredLink):
    """Parameters that all pages about a scenario share."""

    run: Annotated[str, Asked("Your run")] = ""
    run_from: Annotated[
        Literal["", "megatron", "megatron-bridge", "torchtitan", "deepspeed", "maxtext"],
        Asked("Framework of your run", words={"": "Not stated", **_TITLES}),
    ] = ""


@dataclass(frozen=True, slots=True)
class OwnRunView:
    """A person's own run, as a link has it."""

    execution: Mapping[str, Any] | None
    """Values by field, as `engine.launch.evaluable` returns them; None without a run."""
    framework: str | None
    """Name of the framework that starts it; None if nothing says it."""
    selected: int | None
    """The selected execution of the link."""
    figures: FiguresView
    """Choice of the execution that the steps lead to."""
    measured: LinkField
    measured_as: LinkField


def parse_own_run() -> OwnRunView:
    """Parse a person's own run; an invalid part is reported above the page."""
    reader = LinkReader(OwnRunLink, "")
    text, framework = reader.read("run", pattern=_TEXT), reader.read("run_from")
    figure = LinkReader(OwnRunLink, "run")
    figure.read("measured")
    figure.read("measured_as")
    execution = None
    if text:
        try:
            execution = execution_from_text(text)
        except LaunchError as problem:
            state.complain("run", f"The link's run cannot be read: {problem} It is left out.")
    elif (own := state.own_id()) is not None:
        execution = evaluable(_execution_of(own))
    selected = state.selected_id() if execution is not None else None
    return OwnRunView(
        execution, framework or None, selected, parse_figures(), figure.fields["measured"], figure.fields["measured_as"]
    )


def _execution_of(ident: int) -> dict[str, Any]:
    (row,) = state.current_scenario().space.table([ident]).to_dict("records")
    return {str(name): value for name, value in row.items()}


def own_run_parameters(execution: Mapping[str, Any], framework: str | None) -> dict[str, str]:
    """Return the parameters of a link that keeps a run.

    Args:
        execution: values by field, as for `engine.launch.evaluable`.
        framework: name of the framework that starts it, or None.

    Raises `LaunchError` for an execution that cannot be.
    """
    found = {"run": execution_to_text(execution)}
    return found if framework is None else {**found, "run_from": framework}


def forget_own_run() -> None:
    """Remove the run and its measured figure from the link; for callbacks of widgets."""
    state.set_url_values(dict.fromkeys((*state.OWN_RUN, "own")))


def execution_to_text(execution: Mapping[str, Any]) -> str:
    """Return an execution as compact text, such as "tensor_par:8;pipeline_par:4;data_par_overlap:on".

    Fields with the value that a configuration without them has are left out.
    """
    fields = evaluable(execution)
    usual = evaluable({name: fields[name] for name in (*_REQUIRED, "context_par")})
    usual["context_par"] = 1
    stated = {name: value for name, value in fields.items() if name in _ALWAYS or value != usual.get(name)}
    return ";".join(f"{name}:{_value_text(value)}" for name, value in stated.items())


def execution_from_text(text: str) -> dict[str, Any]:
    """Return the execution of a text, with every field. Raises `LaunchError` naming the part at fault."""
    fields: dict[str, Any] = {}
    for piece in filter(None, text.split(";")):
        name, _, value = piece.partition(":")
        if name not in _COLUMNS:
            raise LaunchError(f"{name[:40]!r} is no field of an execution.")
        fields[name] = _value_of(_COLUMNS[name].dtype, value)
    return evaluable(fields)


def _value_text(value: Any) -> str:
    return "on" if value is True else "off" if value is False else str(value)


def _value_of(kind: str, text: str) -> Any:
    if kind == "bool":
        return _SWITCH.get(text, text)
    return int(text) if kind == "int64" and _WHOLE.fullmatch(text) else text
