"""Runs of reinforcement learning into launch files, and launch files into runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchInputs, Written
from engine.launch.conversion import MOST_BYTES, launch_order
from engine.launch.file_kinds import name_by_kind
from engine.launch.post_training.contract import LAYOUT_FIELDS, REPLICA_FIELDS, RUN_SETTINGS, RunOrder, RunReading
from engine.launch.post_training.layout_writing import describe_replaced
from engine.launch.post_training.registry import RUN_FRAMEWORKS, run_framework_of
from engine.launch.serving_engines.model_names import checkpoint_of
from engine.launch.shapes import shape_of
from models import Model, ModelLike, model_of
from models.documents import check_numbers, did_you_mean, shown

__all__ = ["is_run_text", "read_run_text", "run_limits", "write_run"]

UNKNOWN_CHECKPOINT: Final = "YOUR_CHECKPOINT"
MOST_FILES: Final = 64
PATTERN_REPLACED: Final[Mapping[str, tuple[str, Any]]] = {
    "pipeline_interleaving": ("a model with unlike layers has one chunk per stage there", 1),
    "schedule": ("a model with unlike layers has one chunk per stage there", "1f1b"),
    "stage_layout": ("stages of unlike layers follow from their number", "even"),
}
"""Fields of an execution of a model with a pattern of layers that no launch file states."""


def run_limits(framework: str, model: Model) -> dict[str, Any]:
    """Return the limits of training executions of a model that a framework runs, by field.

    Args:
        framework: one of `RUN_FRAMEWORKS`.
        model: that is trained.
    """
    limits = dict(run_framework_of(framework).limits)
    return limits if model.layers is None else limits | {name: [value] for name, (_, value) in PATTERN_REPLACED.items()}


def write_run(
    settings: Mapping[str, Any],
    execution: Mapping[str, Any],
    replicas: Mapping[str, Any],
    model: Model,
    *,
    framework: str,
    gpus_train: int,
    gpus_rollout: int,
    gpus_per_node: int,
    checkpoint: str | None = None,
    note: str = "",
    lacking: Iterable[str] = (),
) -> Written:
    """Return the launch file of a run.

    Args:
        settings: values by path of `RUN_SETTINGS`; absent ones count as None.
        execution: of training, by field.
        replicas: deployment of the rollout, by field.
        model: that is trained.
        framework: one of `RUN_FRAMEWORKS`.
        gpus_train: GPUs that train.
        gpus_rollout: GPUs that generate; the same where both share them.
        gpus_per_node: GPUs of a machine.
        checkpoint: repository or path of the model; the library's where None.
        note: a sentence at the top of the files.
        lacking: sentences about parts of the run that no file of a framework gets.

    Raises `LaunchError` for a run that the framework would refuse, with the reason.
    """
    chosen = run_framework_of(framework)
    fields = {str(name): value for name, value in execution.items()}
    replaced = [*lacking]
    limits = run_limits(framework, model)
    for name, (reason, instead) in {**chosen.replaced, **(PATTERN_REPLACED if model.layers else {})}.items():
        value = fields.get(name)
        if value is not None and value not in limits[name]:
            replaced.append(describe_replaced(name, value, instead, reason))
            fields[name] = instead
    if "zero_stage" in fields:
        fields["optimizer_sharding"] = int(fields["zero_stage"] or 0) > 0
    is_colocated = settings.get("mode") == "colocated"
    whole = gpus_train if is_colocated else gpus_train + gpus_rollout
    each = min(gpus_per_node, whole)
    replica = int(replicas.get("tensor_par", 1)) * int(replicas.get("pipeline_par", 1))
    busy = {"training": int(fields.get("num_procs") or gpus_train), "rollout": gpus_rollout // replica * replica}
    for pool, gpus in {"training": gpus_train, "rollout": gpus_rollout}.items():
        if busy[pool] > gpus:
            raise LaunchError(f"The plan of {pool} has {busy[pool]:,} of {gpus:,} GPUs; it must fit.")
        if busy[pool] < gpus:
            if is_colocated:
                raise LaunchError(
                    f"{chosen.title} would not start: {pool} uses {busy[pool]:,} of {gpus:,} shared GPUs."
                )
            replaced.append(f"{gpus - busy[pool]:,} of {gpus:,} GPUs of {pool}: idle in the plan, and left out.")
        if whole > each and busy[pool] % each:
            raise LaunchError(f"{busy[pool]:,} GPUs of {pool} are no whole nodes of {each:,}.")
    gpus_train, gpus_rollout = busy["training"], busy["rollout"]
    named = checkpoint or checkpoint_of(model.name)
    order = RunOrder(
        {**dict.fromkeys(RUN_SETTINGS), **settings},
        {**dict.fromkeys(REPLICA_FIELDS, 1), **{name: replicas[name] for name in REPLICA_FIELDS if name in replicas}},
        launch_order(fields, model, nodes=max(gpus_train // each, 1)),
        named or UNKNOWN_CHECKPOINT,
        gpus_train,
        gpus_rollout,
        each,
        note,
        tuple(replaced),
        () if named else (f"No checkpoint of {model.name} is known: replace {UNKNOWN_CHECKPOINT}.",),
    )
    return chosen.write(order)


def is_run_text(text: str, name: str) -> bool:
    """Return whether a text starts reinforcement learning with a framework that is known here.

    Args:
        text: of the file.
        name: of the file.
    """
    if len(text) > MOST_BYTES:
        return False
    try:
        named = name_by_kind(text, name)
        return any(each.find(text, named, {}) is not None for each in RUN_FRAMEWORKS.values())
    except LaunchError:
        return False


def read_run_text(
    content: bytes | str,
    name: str,
    *,
    framework: str | None = None,
    files: Mapping[str, str] | None = None,
    stated: Mapping[str, Any] | None = None,
    model: ModelLike | None = None,
    takes_defaults: bool = False,
) -> RunReading:
    """Return the run that a launch file describes.

    Args:
        content: text of the file.
        name: of the file, for messages and its ending.
        framework: name of the framework; detected where None.
        files: texts of files beside it by name, such as the recipe that it starts from.
        stated: values by path of `RUN_SETTINGS`, or by field of the layout, for what the file leaves open; they
            override it.
        model: overrides the file's.
        takes_defaults: whether to assume that missing files and variables hold no keys that are read.

    Raises `LaunchError` for content of no framework that is known, and for invalid values.
    """
    shown_name = shown(name)[1:-1]
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise LaunchError(f"{shown_name} is no text; a launch file is text in UTF-8.") from None
    if len(content) > MOST_BYTES or "\0" in content:
        raise LaunchError(f"{shown_name} is no launch file: too long, or not text.")
    check_numbers(content, shown_name, LaunchError)
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    known = RUN_FRAMEWORKS.values() if framework is None else (run_framework_of(framework),)
    asked = LaunchInputs(
        stated=_check_stated(stated or {}),
        model={} if model is None else shape_of(model_of(model)),
        takes_defaults=takes_defaults,
    )
    if model is not None:
        asked = replace(asked, stated={**asked.stated, "model": model_of(model).name})
    others = dict(files or {})
    if len(others) > MOST_FILES or sum(map(len, others.values())) > MOST_BYTES:
        raise LaunchError(f"More than {MOST_FILES} files, or too long ones, are beside {shown_name}; give its parents.")
    named = name_by_kind(content, name)
    for each in known:
        contents = each.find(content, named, others)
        if contents is not None:
            return each.read(contents, asked)
    titles = ", ".join(each.title for each in known)
    raise LaunchError(f"{shown_name} is no launch file of reinforcement learning; read are those of {titles}.")


def _check_stated(stated: Mapping[str, Any]) -> dict[str, Any]:
    short = {path.rpartition(".")[2]: path for path in RUN_SETTINGS if not path.startswith("rollout.")}
    found = {}
    for name, value in stated.items():
        path = name if name in RUN_SETTINGS or name in LAYOUT_FIELDS else short.get(name)
        if path is None:
            known = [*RUN_SETTINGS, *LAYOUT_FIELDS]
            raise LaunchError(f"There is no setting {shown(name)} of a run{did_you_mean(name, known)}.")
        found[path] = value
    return found
