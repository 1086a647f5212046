"""Cut of layers into stages: by torchtitan's keys, and as a stage layout of an execution.

Embedding and head count as layers, one each by default; layers are spread evenly over the stages, the first ones take
the remainder, and the ends have fewer layers in exchange for embedding and head. Any other cut is a list of modules by
stage.

Source: torchtitan/distributed/pipeline_parallel.py, `_get_pipeline_metadata` and `_generate_llm_fqn_per_model_part`;
config/manager.py, `list_str_rule`, for lists on the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from engine.columns.stage_layouts import list_of_layers
from engine.executions.layer_splits import LayerSplitError, even_cut, torchtitan_split
from engine.launch.contract import LaunchError
from engine.launch.report import OPEN, Report
from engine.launch.settings import LaunchSettings

__all__ = ["cut_keys", "modules_of", "read_cut"]

_PER_STAGE: Final = "parallelism.pipeline_parallel_layers_per_stage"
_FIRST: Final = "parallelism.pipeline_parallel_first_stage_less_layers"
_LAST: Final = "parallelism.pipeline_parallel_last_stage_less_layers"
MODULES: Final = "parallelism.module_fqns_per_model_part"


def cut_keys(blocks: Sequence[int], pipeline: int) -> dict[str, Any]:
    """Returns the keys with which torchtitan cuts a model into these stages.

    Args:
        blocks: layers of every stage of the model, in the order in which a token passes them.
        pipeline: ranks of the pipeline.

    Raises LaunchError where a stage between the ends has no layer, which torchtitan has no word for.
    """
    layers, stages = sum(blocks), len(blocks)
    most = max(blocks)
    # Equal stages count neither end, the default counts each as one layer; else the smallest weights of these stages.
    every = ((i, o) for i in range(most + 1) for o in range(most + 1))
    weights = sorted(every, key=lambda pair: (pair != (1, 1), sum(pair)))
    for first, last in ((0, 0), *weights):
        try:
            found = torchtitan_split(layers, stages, input_weight=first, output_weight=last)
        except LayerSplitError:
            continue
        each = -(-(layers + first + last) // stages)
        if found == list(blocks) and -(-(layers + first + last) // each) == stages:
            return {_PER_STAGE: each, _FIRST: first, _LAST: last}
    if not all(blocks[1:-1]):
        raise LaunchError(
            f"torchtitan takes a layer at least for each of the stages between embedding and head; {layers} layers on "
            f"{stages} stages leave some without."
        )
    return {MODULES: modules_of(blocks)}


def modules_of(blocks: Sequence[int]) -> list[list[str]]:
    """Returns the names of the modules of every stage of the model.

    Args:
        blocks: layers of every stage of the model, in the order in which a token passes them.
    """
    parts, start = [], 0
    for number in blocks:
        parts.append([f"layers.{layer}" for layer in range(start, start + number)])
        start += number
    parts[0] = ["tok_embeddings", *parts[0]]
    parts[-1] = [*parts[-1], "norm", "lm_head"]
    return parts


def read_cut(settings: LaunchSettings, report: Report) -> None:
    """Adds the stage layout, and for a list of modules the interleaving, to what a configuration says.

    Args:
        settings: keys and values of the configuration.
        report: whose execution has the degrees of parallelism and the interleaving, as far as it is known.

    Raises LaunchError for a list of modules that leaves layers out.
    """
    parts = _split_modules(settings.given.get(MODULES))
    if parts:
        report.say_if_any("pipeline_interleaving", lambda: _chunks_of_modules(parts, report))
    report.say_if_any("stage_layout", lambda: _read_layout(settings, report, parts))


def _chunks_of_modules(parts: list[list[str]], report: Report) -> int | None:
    """Return the chunks of each rank that a list of modules has; None without a pipeline."""
    pipeline = int(report.execution["pipeline_par"])
    if pipeline == 1:
        return report.execution.get("pipeline_interleaving")
    if len(parts) % pipeline:
        report.refuse(f"{MODULES} lists {len(parts)} stages, which {pipeline} ranks do not divide")
        return report.execution.get("pipeline_interleaving")
    return len(parts) // pipeline


def _read_layout(settings: LaunchSettings, report: Report, parts: list[list[str]]) -> Any:
    """Return the layers of every stage in the words of `stage_layout`; None where they are even."""
    pipeline = int(report.execution["pipeline_par"])
    if pipeline == 1:
        return None
    if parts:
        names = [[name for name in part if name.startswith("layers.")] for part in parts]
        if [name for part in names for name in part] != [f"layers.{n}" for n in range(sum(map(len, names)))]:
            raise LaunchError(f"{MODULES} has to list the layers in their order: layers.0,layers.1 layers.2 and so on.")
        if len(parts) % pipeline:
            return None
        blocks = tuple(map(len, names))
    else:
        layers, chunks = report.model.get("layers"), report.execution.get("pipeline_interleaving")
        if layers is None or chunks is None:
            return OPEN
        first, last = settings.whole(_FIRST, 1, least=0) or 0, settings.whole(_LAST, 1, least=0) or 0
        try:
            blocks = tuple(torchtitan_split(layers, pipeline * chunks, input_weight=first, output_weight=last))
        except LayerSplitError as problem:
            report.refuse(str(problem).rstrip("."))
            return None
    return None if blocks == even_cut(sum(blocks), len(blocks)) else list_of_layers(blocks)


def _split_modules(value: Any) -> list[list[str]]:
    """The modules of every stage: lists of names, or words of names with commas between."""
    words = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
    return [each.split(",") if isinstance(each, str) else [str(name) for name in each] for each in words]
