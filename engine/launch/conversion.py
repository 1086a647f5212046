"""The public calls: an execution into a configuration, and a file or flags into an execution."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from engine.columns import ALL_FIELDS, Column
from engine.columns.fields import CHOICE_LABELS
from engine.cost_models.registry import cost_model_with
from engine.executions.field_values import flag, whole_number
from engine.executions.layer_splits import LayerSplitError, StageCut
from engine.launch.contract import (
    FileContents,
    Framework,
    LaunchError,
    LaunchInputs,
    LaunchOrder,
    LaunchReading,
    OnlyModelError,
    OpenFieldsError,
    Origin,
    Written,
)
from engine.launch.file_kinds import (
    foreign_program,
    is_model_config,
    is_reinforcement,
    name_by_kind,
    possible_frameworks,
)
from engine.launch.registry import FRAMEWORKS, framework_of
from engine.launch.serving_engines.texts import is_serving_text
from engine.launch.shapes import SHAPE_WORDS, model_of_shape, shape_of
from models import Model, ModelLike, edited, model_of, unrepresented
from models.documents import check_numbers, near_matches, shown

__all__ = [
    "MOST_BYTES",
    "complete",
    "evaluable",
    "launch_order",
    "network_of",
    "read",
    "read_flags",
    "read_text",
    "settle",
    "write",
]

MOST_BYTES: Final = 2_000_000
"""Largest file that is read [bytes]; published scripts have some ten thousand."""
MOST_FLAGS: Final = 5_000
"""Flags at most; the richest parser knows some 850."""
LARGEST: Final = 2**31 - 1
USUAL_NODE: Final = 8
"""GPUs of a node if nothing gives their number."""
_OPEN: Final = ("attention_kernel",)
"""Fields that stay open where an execution does not state them: the framework chooses."""


def write(
    execution: Mapping[str, Any], model: ModelLike, *, framework: str, nodes: int | None = None, note: str = ""
) -> Written:
    """Return the complete configuration with which a framework runs an execution of a model.

    Args:
        execution: values by field; fields beyond the 23 may be absent, other names are ignored.
        model: name in the library, path, or the model.
        framework: one of `engine.launch.FRAMEWORKS`.
        nodes: machines over which the GPUs are spread evenly; nodes of eight GPUs if None.
        note: a sentence at the top of the files, such as which execution of several it is.

    Raises `LaunchError` for an invalid execution or one that the framework would refuse, with the reason;
    `models.ModelFileError` for an unknown model.
    """
    chosen, network = framework_of(framework), model_of(model)
    made = chosen.write(launch_order(execution, network, nodes=nodes, note=note))
    left_out = tuple(f"Not represented in figures of {network.name}: {each}" for each in unrepresented(network))
    if network.tuning is not None:
        said = network.tuning.describe()
        unwritten = f"{said[:1].upper()}{said[1:]}: not written; all weights are trained on full sequences."
        made = replace(made, not_expressible=(unwritten, *made.not_expressible))
    return replace(made, remarks=(*made.remarks, *left_out))


def launch_order(
    execution: Mapping[str, Any], model: Model, *, nodes: int | None = None, note: str = ""
) -> LaunchOrder:
    """Return what a framework is asked to write: an execution with all its fields, its model, machines and stages.

    Args:
        execution: values by field; fields beyond the 23 may be absent, other names are ignored.
        model: that it trains.
        nodes: machines over which the GPUs are spread evenly; nodes of eight GPUs if None.
        note: a sentence at the top of the files.

    Raises `LaunchError` for an invalid execution.
    """
    fields = complete(execution)
    gpus = fields["num_procs"]
    if nodes is None:
        each = next(size for size in range(min(USUAL_NODE, gpus), 0, -1) if gpus % size == 0)
        nodes = gpus // each
    elif isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1 or gpus % nodes:
        raise LaunchError(f"{gpus} GPUs cannot be spread over {shown(nodes)} nodes; give a divisor of {gpus}.")
    return LaunchOrder(fields, model, shape_of(model), nodes, gpus // nodes, _cut_stages(model, fields), note)


def _cut_stages(model: Model, fields: Mapping[str, Any]) -> StageCut:
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
    """Return an execution with every field of the register, checked as far as possible without the model.

    Absent fields get their defaults; `attention_kernel` is then None, `num_procs` the product of the degrees;
    `zero_stage` follows from `optimizer_sharding`, and `schedule` from the interleaving.

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
        fields[column.name] = None if _is_absent(value) else _convert_value(column, value)
    product = 1
    for name in ("tensor_par", "pipeline_par", "data_par", "context_par"):
        if fields[name] is None:
            fields[name] = 1 if name == "context_par" else _refuse_missing(name)
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
            _refuse_missing(name)
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
            fields[column.name] = _default_value(column)
    return fields


_ASSUMED: Final[Mapping[str, Any]] = {
    "attention_kernel": None,
    "launch": "fused",
    "activation_recompute": "none",
    "selective_recompute": "attention",
    "gradient_datatype": "float32",
    "token_dispatcher": "all_to_all",
    "dispatch_datatype": "bfloat16",
    "expert_imbalance": 100,
    "context_par_comm": "p2p",
}
"""Fields that some files never state, because code or the system does, with what counts until the user states them;
None: the system's default."""


def settle(reading: LaunchReading) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the execution of a reading with every field, and which of its values nothing states: assumptions, to be
    said wherever figures of it are.

    Args:
        reading: of a configuration.

    Raises `OpenFieldsError` where a field that decides is open, and `LaunchError` as `complete` does.
    """
    execution = dict(reading.execution)
    assumed: dict[str, Any] = {}
    asked: dict[str, Origin] = {}
    seen: set[int] = set()
    names = {column.name: column.label for column in ALL_FIELDS}
    for name, origin in reading.origins.items():
        if origin.kind != "unknown" or name in execution or name in reading.model:
            continue
        if not origin.words and name in _ASSUMED:
            assumed[name] = _ASSUMED[name]
        elif id(origin) not in seen:
            asked[name] = origin
        seen.add(id(origin))
    if any(name in SHAPE_WORDS for name in asked):
        asked = {name: each for name, each in asked.items() if name not in SHAPE_WORDS} | {
            "model": next(each for name, each in asked.items() if name in SHAPE_WORDS)
        }
    if asked:
        places: dict[str, list[str]] = {}
        for name, origin in asked.items():
            place = f" (line {origin.line})" if origin.line else ""
            places.setdefault(f"{origin.words}{place}" if origin.words else "not said", []).append(
                f"{names.get(name, name)}"
            )
        told = "; ".join(f"{', '.join(fields)}: {place}" for place, fields in places.items())
        raise OpenFieldsError(f"The configuration leaves open what a prediction needs. {told}.", asked)
    return complete({**execution, **{name: value for name, value in assumed.items() if value is not None}}), assumed


def network_of(reading: LaunchReading, model: ModelLike | None, name: str = "imported") -> Model:
    """Returns the model that a configuration trains, at its sequence length.

    Args:
        reading: of the configuration.
        model: that the caller names; the one that the configuration describes where None.
        name: of a model that the library does not have.

    Raises `LaunchError` where nothing says which model it is; `models.ModelFileError` for an unknown one.
    """
    if model is None:
        return model_of_shape(reading.model, name)
    network, origin = model_of(model), reading.origins.get("seq")
    sequence = reading.model.get("seq")
    if sequence is None or sequence == network.seq_size or origin is None or origin.words == "--model":
        return network
    return edited(network, {"seq_size": int(sequence)})


def evaluable(execution: Mapping[str, Any] | LaunchReading) -> dict[str, Any]:
    """Return an execution with every stated field, as cost models accept it.

    Configurations may contain settings without effect, which cost models refuse as contradictions: repeated gathers
    with full recomputation, and sharding or overlap among replicas with a single replica.

    Args:
        execution: values by field name, or a `LaunchReading`, whose open fields are not filled in.

    Raises `LaunchError` as `complete` does, and `OpenFieldsError` as `settle` does.
    """
    whole = settle(execution)[0] if isinstance(execution, LaunchReading) else complete(execution)
    fields = {name: value for name, value in whole.items() if value is not None}
    if fields["activation_recompute"] == "full" or fields["tensor_par_comm_type"] != "rs_ag":
        fields["seq_par_ag_redo"] = False
    if fields["data_par"] * fields["context_par"] == 1:
        fields |= {"zero_stage": 0, "optimizer_sharding": False, "data_par_overlap": False}
    if fields["tensor_par"] == 1:
        fields["tensor_par_overlap"] = "none"
    return fields


_DEFAULTS: Final[Mapping[str, Any]] = {
    "datatype": "bfloat16",
    "activation_recompute": "none",
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
}


def _default_value(column: Column) -> Any:
    if column.default is not None:
        return column.default
    return _DEFAULTS.get(column.name, {"int64": 0, "bool": False, "str": ""}[column.dtype])


def _refuse_missing(name: str) -> Any:
    raise LaunchError(f"The execution does not say {name}; a configuration needs it.")


def _is_absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and value != value)


def _convert_value(column: Column, value: Any) -> Any:
    if column.dtype == "bool":
        found: Any = flag(value)
        right = "true or false"
    elif column.dtype == "int64":
        found = whole_number(value)
        least = column.least
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


def read_flags(
    framework: str,
    flags: Mapping[str, Any] | Sequence[str],
    *,
    gpus: int | None = None,
    stated: Mapping[str, Any] | None = None,
    model: ModelLike | None = None,
    takes_defaults: bool = False,
) -> LaunchReading:
    """Return the execution and model that flags of a framework describe.

    Args:
        framework: one of `engine.launch.FRAMEWORKS`.
        flags: values by the framework's names, True for a flag without a value, an `UnknownValue` for one that is
            taken from outside the file; or the words of a command line.
        gpus: number of GPUs, if known from elsewhere; without it, fields that follow from it stay open.
        stated: values by field that override the flags.
        model: overrides the flags, except for the sequence length.
        takes_defaults: whether to assume that missing words hold no flags that are read.

    Raises `LaunchError` for an unknown framework, and for malformed flags.
    """
    chosen = framework_of(framework)
    asked = replace(_check_inputs(gpus, stated, model), takes_defaults=takes_defaults)
    if isinstance(flags, str) or not isinstance(flags, Mapping | Sequence):
        raise LaunchError(f"The flags are {shown(flags)}; give values by flag, or a list of words.")
    if len(flags) > MOST_FLAGS:
        raise LaunchError(f"There are {len(flags):,} flags; at most {MOST_FLAGS:,} are read.")
    if not isinstance(flags, Mapping):
        found = chosen.find(" ".join(_quote_word(str(word)) for word in flags), "", None) or FileContents({})
        return _read_found(chosen, found, asked)
    return chosen.read_flags({str(name): value for name, value in flags.items()}, asked)


def _check_inputs(gpus: int | None, stated: Mapping[str, Any] | None, model: ModelLike | None) -> LaunchInputs:
    """Return the caller's values, checked field by field. Raises `LaunchError` naming the field at fault."""
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or not 1 <= gpus <= LARGEST):
        raise LaunchError(f"The number of GPUs is {shown(gpus)}; it must be a whole number from 1.")
    columns = {column.name: column for column in ALL_FIELDS}
    values: dict[str, Any] = {}
    for name, value in (stated or {}).items():
        if name == "num_procs":
            gpus = _convert_value(columns[name], value)
        elif name in columns:
            values[name] = _convert_value(columns[name], value)
        elif name in SHAPE_WORDS:
            values[name] = value
        else:
            near = near_matches(name, [*columns, *SHAPE_WORDS])
            raise LaunchError(f"There is no field {shown(name)}" + (f"; did you mean {near[0]}?" if near else "."))
    # Fields that another one decides altogether.
    if "zero_stage" in values:
        values.setdefault("optimizer_sharding", values["zero_stage"] > 0)
    if "tensor_par_comm_type" in values:
        values.setdefault("seq_par_ag_redo", values["tensor_par_comm_type"] == "rs_ag")
    if values.get("activation_recompute") in ("full", "none"):
        values.setdefault("selective_recompute", "attention")
    shape = {} if model is None else shape_of(model_of(model))
    origin = None if gpus is None else Origin("stated", "--procs")
    return LaunchInputs(gpus, origin, {}, values, shape)


def _read_found(framework: Framework, found: FileContents, asked: LaunchInputs) -> LaunchReading:
    """Return the reading of a file's contents, with the origin of each flag."""
    gpus, origin = (
        (asked.gpus, asked.gpus_origin) if asked.gpus is not None else (found.gpus, found.origins.get("gpus"))
    )
    reading = framework.read_flags(found.flags, replace(asked, gpus=gpus, gpus_origin=origin, origins=found.origins))
    return replace(
        reading,
        unread=tuple(dict.fromkeys((*found.unread, *reading.unread))),
        remarks=tuple(dict.fromkeys((*found.remarks, *reading.remarks))),
        recipes=found.recipes,
    )


def _quote_word(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def read(
    path: str | os.PathLike[str],
    *,
    framework: str | None = None,
    gpus: int | None = None,
    recipe: str | None = None,
    stated: Mapping[str, Any] | None = None,
    model: ModelLike | None = None,
    takes_defaults: bool = False,
) -> LaunchReading:
    """Return the contents of a launch configuration in a file: a script or command line, a recipe, YAML, TOML or JSON.

    Args:
        path: of the file.
        framework: name of the framework; the one that knows the file where None.
        gpus: how many there are, which counts more than what the file says.
        recipe: name of one recipe of a Python file that has several; the first for pretraining where None.
        stated: values by field that the caller states for what the file leaves open; they count more than it.
        model: which it is; it counts more than the file, but for the sequence length.
        takes_defaults: whether files and variables that are not at hand are taken to hold no flags that are read.

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
    return read_text(
        content,
        os.path.basename(os.fspath(path)),
        framework=framework,
        gpus=gpus,
        recipe=recipe,
        stated=stated,
        model=model,
        takes_defaults=takes_defaults,
    )


def read_text(
    content: bytes | str,
    name: str,
    *,
    framework: str | None = None,
    gpus: int | None = None,
    recipe: str | None = None,
    stated: Mapping[str, Any] | None = None,
    model: ModelLike | None = None,
    takes_defaults: bool = False,
) -> LaunchReading:
    """Return the execution and model that the text of a launch configuration describes.

    Args:
        content: text of the file.
        name: file name, for messages and for its ending.
        framework: name of the framework; detected from the file if None.
        gpus: number of GPUs; overrides the file.
        recipe: name of one recipe of a Python file that has several; the first for pretraining if None.
        stated: values by field for fields that the file leaves open; they override the file.
        model: overrides the file, except for the sequence length.
        takes_defaults: whether to assume that missing files and variables hold no flags that are read.

    Raises `LaunchError` for content that is not text, is too long, or belongs to no known framework; `OnlyModelError`
    for the configuration of a model.
    """
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise LaunchError(f"{shown(name)[1:-1]} is no text; a launch configuration is text in UTF-8.") from None
    if len(content) > MOST_BYTES or "\0" in content:
        raise LaunchError(f"{shown(name)[1:-1]} is no launch configuration: too long, or not text.")
    check_numbers(content, shown(name)[1:-1], LaunchError)
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    asked = replace(_check_inputs(gpus, stated, model), takes_defaults=takes_defaults)
    if is_model_config(content):
        raise OnlyModelError(
            f"{shown(name)[1:-1]} is a Hugging Face config.json, which says how a model is built, not how it is "
            "trained; give it where a model is asked for."
        )
    known = FRAMEWORKS.values() if framework is None else (framework_of(framework),)
    titles = ", ".join(each.title for each in known)
    name = name_by_kind(content, name)
    serving = (
        f"{shown(name)[1:-1]} starts a server of a serving engine; read it with `shardscape import` or "
        "`engine.launch.read_engine_text`."
    )
    if framework is None and is_reinforcement(content):
        raise LaunchError(
            f"{shown(name)[1:-1]} runs reinforcement learning; open it on Post-train, or read it with `shardscape "
            "import`."
        )
    if framework is None and (foreign := foreign_program(content, name)) is not None:
        if is_serving_text(content, name):
            raise LaunchError(serving)
        raise LaunchError(
            f"{shown(name)[1:-1]} is a configuration of {foreign}, which is not read here; read are those of {titles}."
        )
    guess: tuple[Framework, FileContents] | None = None
    problem: LaunchError | None = None
    for each in possible_frameworks(content, name, known):
        try:
            found = each.find(content, name, recipe)
        except LaunchError as error:
            problem = problem or error  # another framework may know the file
            continue
        if found is None:
            continue
        if found.is_certain:
            return _read_found(each, found, asked)
        guess = guess or (each, found)
    if guess is not None:
        return _read_found(*guess, asked)
    if framework is None and is_serving_text(content, name):
        raise LaunchError(serving)
    if problem is not None:
        raise problem
    raise LaunchError(f"{shown(name)[1:-1]} is no launch configuration that is known here; read are those of {titles}.")
