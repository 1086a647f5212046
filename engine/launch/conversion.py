"""The public calls: an execution into a configuration, and a file or flags into an execution."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from engine.columns import ALL_FIELDS, Column
from engine.columns.fields import CHOICE_LABELS
from engine.cost_models.registry import cost_model_with
from engine.executions.field_values import flag, whole_number
from engine.executions.layer_splits import LayerSplitError, StageCut
from engine.launch.contract import LaunchError, OnlyModelError, Order, Reading, Written
from engine.launch.registry import FRAMEWORKS, framework_of
from engine.launch.shapes import shape_of
from models import Model, ModelLike, model_of
from models.documents import shown

__all__ = ["MOST_BYTES", "complete", "evaluable", "read", "read_flags", "read_text", "write"]

MOST_BYTES: Final = 2_000_000
"""Largest file that is read [bytes]; published scripts have some ten thousand."""
MOST_FLAGS: Final = 5_000
"""Flags at most; the richest parser knows some 850."""
LARGEST: Final = 2**31 - 1
USUAL_NODE: Final = 8
"""GPUs of a node where nobody says."""
_OPEN: Final = ("attention_kernel",)
"""Fields that stay open where an execution does not state them: the framework chooses."""


def write(
    execution: Mapping[str, Any], model: ModelLike, *, framework: str, nodes: int | None = None, note: str = ""
) -> Written:
    """Returns the complete configuration with which a framework runs an execution of a model.

    Args:
        execution: values by field; fields beyond the 23 may be absent, other names are not looked at.
        model: name in the library, path, or the model.
        framework: name of it, one of `engine.launch.FRAMEWORKS`.
        nodes: machines over which the GPUs are spread evenly; nodes of eight where None.
        note: a sentence at the top of the files, such as which execution of several it is.

    Raises `LaunchError` for an execution that is none, and where the framework would refuse it, with its reason;
    `models.ModelFileError` for an unknown model.
    """
    chosen, network = framework_of(framework), model_of(model)
    fields = complete(execution)
    gpus = fields["num_procs"]
    if nodes is None:
        each = next(size for size in range(min(USUAL_NODE, gpus), 0, -1) if gpus % size == 0)
        nodes = gpus // each
    elif isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1 or gpus % nodes:
        raise LaunchError(f"{gpus} GPUs cannot be spread over {shown(nodes)} nodes; give a divisor of {gpus}.")
    return chosen.write(Order(fields, network, shape_of(network), nodes, gpus // nodes, _cut(network, fields), note))


def _cut(model: Model, fields: Mapping[str, Any]) -> StageCut:
    """The layers of every stage of the model. Raises LaunchError where the stage layout does not divide them."""
    ranks, chunks, layout = fields["pipeline_par"], fields["pipeline_interleaving"], fields["stage_layout"]
    try:
        if ranks == 1:
            layout, chunks = "even", 1
        return cost_model_with("stage_layout").stage_cut(model, ranks, chunks, layout)
    except LayerSplitError as problem:
        raise LaunchError(
            f"The stage layout {shown(layout)[1:-1]} does not cut {model.title or model.name} into {ranks} stages of "
            f"{chunks} chunks: {str(problem).rstrip('.')}."
        ) from None


def complete(execution: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an execution with every field of the register, checked as far as no model is needed.

    Absent fields have their defaults; `attention_kernel` is None then, `num_procs` the product of the degrees,
    `zero_stage` what `optimizer_sharding` says, and `schedule` what the interleaving says.

    Args:
        execution: values by field name.

    Raises `LaunchError` naming the field at fault.
    """
    try:
        given = {str(name): value for name, value in dict(execution).items()}
    except (TypeError, ValueError):
        raise LaunchError(f"The execution is {shown(execution)}; it must have values by field name.") from None
    fields: dict[str, Any] = {}
    for column in ALL_FIELDS:
        value = given.get(column.name)
        fields[column.name] = None if _absent(value) else _value(column, value)
    product = 1
    for name in ("tensor_par", "pipeline_par", "data_par", "context_par"):
        if fields[name] is None:
            fields[name] = 1 if name == "context_par" else _missing(name)
        product *= fields[name]
    if fields["num_procs"] is None:
        fields["num_procs"] = product
    if fields["num_procs"] != product:
        raise LaunchError(
            f"The execution has num_procs {fields['num_procs']}, but its tensor, pipeline, data and context parallel "
            f"degrees multiply to {product}; they must agree."
        )
    for name in ("batch_size", "microbatch_size"):
        if fields[name] is None:
            _missing(name)
    if fields["batch_size"] % (fields["data_par"] * fields["microbatch_size"]):
        raise LaunchError(
            f"A batch of {fields['batch_size']} cannot be shared by {fields['data_par']} replicas in microbatches of "
            f"{fields['microbatch_size']}; it must be a multiple of their product."
        )
    if fields["pipeline_interleaving"] is None:
        fields["pipeline_interleaving"] = 1
    if fields["zero_stage"] is None:
        fields["zero_stage"] = int(bool(fields["optimizer_sharding"]))
    if fields["optimizer_sharding"] is None or fields["zero_stage"]:
        fields["optimizer_sharding"] = fields["zero_stage"] > 0
    elif fields["optimizer_sharding"]:
        fields["zero_stage"] = 1
    if fields["schedule"] is None:
        fields["schedule"] = "interleaved" if fields["pipeline_interleaving"] > 1 else "1f1b"
    for column in ALL_FIELDS:
        if fields[column.name] is None and column.name not in _OPEN:
            fields[column.name] = _default(column)
    return fields


def evaluable(execution: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an execution with every field that it states, as cost models take it.

    Configurations leave on what has no effect, which cost models refuse as a contradiction: gathers repeated where
    whole blocks are recomputed, and sharing or overlapping something among replicas where there is one.

    Args:
        execution: values by field name, such as those of a `Reading`.

    Raises `LaunchError` as `complete` does.
    """
    fields = {name: value for name, value in complete(execution).items() if value is not None}
    if fields["activation_recompute"] == "full" or fields["tensor_par_comm_type"] != "rs_ag":
        fields["seq_par_ag_redo"] = False
    if fields["data_par"] * fields["context_par"] == 1:
        fields |= {"zero_stage": 0, "optimizer_sharding": False, "data_par_overlap": False}
    if fields["tensor_par"] == 1:
        fields["tensor_par_overlap"] = "none"
    return fields


_DEFAULTS: Final[Mapping[str, Any]] = {
    "datatype": "bfloat16", "activation_recompute": "none", "tensor_par_comm_type": "ar", "tensor_par_overlap": "none",
}  # fmt: skip


def _default(column: Column) -> Any:
    if column.default is not None:
        return column.default
    return _DEFAULTS.get(column.name, {"int64": 0, "bool": False, "str": ""}[column.dtype])


def _missing(name: str) -> Any:
    raise LaunchError(f"The execution does not say {name}; a configuration needs it.")


def _absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and value != value)


def _value(column: Column, value: Any) -> Any:
    if column.dtype == "bool":
        found: Any = flag(value)
        right = "true or false"
    elif column.dtype == "int64":
        found = whole_number(value)
        least = 0 if column.name.endswith("_net") or column.name == "zero_stage" else 1
        if found is not None and not (found in column.numbers if column.numbers else least <= found <= LARGEST):
            found = None
        right = " or ".join(map(str, column.numbers)) or f"a whole number from {least}"
    else:
        words = column.choices or tuple(CHOICE_LABELS.get(column.name, ()))
        known = isinstance(value, str) and (not words or value in words or column.position(value) >= 0)
        found = value if known else None
        right = "one of " + ", ".join(words) + (", or in the words of its own" if column.open is not None else "")
    if found is None:
        raise LaunchError(f"The execution has {column.name} {shown(value)}; it must be {right}.")
    return found


def read_flags(framework: str, flags: Mapping[str, Any] | Sequence[str], *, gpus: int | None = None) -> Reading:
    """Returns what flags of a framework say of an execution and its model.

    Args:
        framework: name of it, one of `engine.launch.FRAMEWORKS`.
        flags: values by the framework's names, True for a flag without a value; or the words of a command line.
        gpus: how many there are, where something beside the flags says it; without it, what follows from it is left.

    Raises `LaunchError` for an unknown framework, and for flags that are none.
    """
    chosen = framework_of(framework)
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= LARGEST):
        raise LaunchError(f"The number of GPUs is {shown(gpus)}; it must be a whole number from 1.")
    if isinstance(flags, str) or not isinstance(flags, Mapping | Sequence):
        raise LaunchError(f"The flags are {shown(flags)}; give values by flag, or a list of words.")
    if len(flags) > MOST_FLAGS:
        raise LaunchError(f"There are {len(flags):,} flags; at most {MOST_FLAGS:,} are read.")
    if not isinstance(flags, Mapping):
        found = chosen.find(" ".join(_quoted(str(word)) for word in flags), "")
        flags, gpus = (found.flags, gpus or found.gpus) if found is not None else ({}, gpus)
    return chosen.read_flags({str(name): value for name, value in flags.items()}, gpus)


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def read(path: str | os.PathLike[str], *, framework: str | None = None, gpus: int | None = None) -> Reading:
    """Returns what a launch configuration in a file says: a script or command line, a recipe, YAML, TOML or JSON.

    Args:
        path: of the file.
        framework: name of the framework; the first that knows the file where None.
        gpus: how many there are, which counts more than what the file says.

    Raises `LaunchError` for a file that cannot be read, or is of no framework that is known.
    """
    name = shown(os.fspath(path))[1:-1]
    try:
        found = os.stat(path)  # looked at before it is opened: opening a pipe would wait for ever
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a file"
            raise LaunchError(f"{name} is {what}; name a launch configuration.")
        if found.st_size > MOST_BYTES:
            raise LaunchError(f"{name} has {found.st_size:,} bytes; launch configurations have {MOST_BYTES:,} at most.")
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise LaunchError(f"{name} does not exist; name a launch configuration.") from None
    except (OSError, ValueError) as problem:
        if isinstance(problem, LaunchError):
            raise
        told = (getattr(problem, "strerror", None) or type(problem).__name__).lower()
        raise LaunchError(f"{name} cannot be read ({told}); name a launch configuration.") from None
    return read_text(content, os.path.basename(os.fspath(path)), framework=framework, gpus=gpus)


def read_text(content: bytes | str, name: str, *, framework: str | None = None, gpus: int | None = None) -> Reading:
    """Returns what the text of a launch configuration says.

    Args:
        content: of the file.
        name: of the file, for messages and for its ending.
        framework: name of the framework; the first that knows the file where None.
        gpus: how many there are, which counts more than what the file says.

    Raises `LaunchError` for what is no text, too long, or of no framework that is known.
    """
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise LaunchError(f"{shown(name)[1:-1]} is no text; a launch configuration is text in UTF-8.") from None
    if len(content) > MOST_BYTES or "\0" in content:
        raise LaunchError(f"{shown(name)[1:-1]} is no launch configuration: too long, or not text.")
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    asked = FRAMEWORKS.values() if framework is None else (framework_of(framework),)
    for each in asked:
        found = each.find(content, name)
        if found is None:
            continue
        reading = each.read_flags(found.flags, gpus if gpus is not None else found.gpus)
        return Reading(
            reading.framework, reading.version, reading.execution, reading.model, reading.num_procs,
            reading.not_modelled, (*found.unread, *reading.unread), (*found.remarks, *reading.remarks),
            reading.left, reading.refused, reading.flags,
        )  # fmt: skip
    if '"model_type"' in content and content.lstrip().startswith("{"):
        raise OnlyModelError(
            f"{shown(name)[1:-1]} is a Hugging Face config.json, which says how a model is built, not how it is "
            "trained; give it where a model is asked for."
        )
    titles = ", ".join(each.title for each in asked)
    raise LaunchError(f"{shown(name)[1:-1]} is no launch configuration that is known here; read are those of {titles}.")
