"""The commands `export` and `import`: executions as launch configurations of training frameworks, and back."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import CalibrationOption, CostModelOption, JsonOption, LimitOption
from engine.cli.output import as_json, calibration_of, quantity, text_table, unit_of, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.launch import Reading, Standing, Written

__all__ = ["execution_in", "export", "import_"]

FRAMEWORK_WORDS: Final = "megatron|megatron-bridge|torchtitan|deepspeed|maxtext"
RECOMMENDED: Final = "The recommended execution is written; --fastest writes the fastest."
FASTEST: Final = "The fastest execution is written; without --fastest and --row the recommended one is."
LARGEST_RESULT: Final = 50_000_000
"""Largest JSON file of results that is looked into [bytes]."""


def export(
    execution: Annotated[
        Path, typer.Argument(metavar="EXECUTION", help="File with executions, or JSON of `best` or `explore`.")
    ],
    framework: Annotated[str, typer.Option("--to", metavar=FRAMEWORK_WORDS, help="Framework to write for.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Library name or JSON file; as in JSON of results.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", metavar="N", help="Machines; of eight GPUs each by default.")
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", metavar="N", min=0, help="Which execution, counted from 0; the recommended one first."),
    ] = None,
    fastest: Annotated[
        bool, typer.Option("--fastest", help="The fastest execution, although the file recommends another one.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Write the files there instead of printing them.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write an execution as a configuration that a training framework starts with: model, launcher, every flag.

    What the framework cannot say, and what the configuration sets without a field here, is listed where errors go, and
    as comments in the file. EXECUTION is a CSV, Parquet or JSON file, or what `best --json` and `explore --json` print,
    which names the model, too. Of `best --recommended --json` the recommended execution is written; --fastest and --row
    ask for another one.

    \b
    Examples:
      shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 256 --datatype bfloat16 --json > best.json
      shardscape export best.json --to megatron > launch.sh
      shardscape export executions.csv --model llama-3-70B --to megatron-bridge --row 3 --out launch
      shardscape export execution.json --model deepseek-v3 --to torchtitan --nodes 32

    \b
    JSON: framework, version, files (text by name), flags (value by name), not_expressible, not_modelled, remarks,
    written (which execution it is, in words).
    """
    from engine.launch import LaunchError
    from engine.launch import write as written_for

    if fastest and row:
        raise LaunchError(f"--fastest is row 0 and --row is {row}; give one of them.")
    chosen, named, which = execution_in(execution, 0 if fastest else row)
    network = model or named
    if network is None:
        raise LaunchError(f"{execution} does not name its model; give it with --model.")
    made = written_for(chosen, network, framework=framework, nodes=nodes, note=which)
    if json:
        from engine.questions.executions import written_document

        write(as_json({**written_document(made), "written": which}))
        return
    if out is None:
        write(made.text)
    else:
        _write_files(made, out)
    if which:
        write(which, stream=sys.stderr)
    _tell(made.title, made.version, {
        "Not expressible there": made.not_expressible, "Set there, not modelled": made.not_modelled,
        "Remarks": made.remarks,
    })  # fmt: skip


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Launch script, recipe or configuration.")],
    framework: Annotated[
        str | None, typer.Option("--framework", metavar=FRAMEWORK_WORDS, help="Whose it is; recognised by default.")
    ] = None,
    procs: Annotated[
        int | None, typer.Option("--procs", metavar="N", help="GPUs, where the file does not say or says otherwise.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="SYSTEM", help="Evaluate it there, beside the best of its kind.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Its model, where the file does not describe it.")
    ] = None,
    limit: LimitOption = None,
    cost_model: CostModelOption = None,
    calibration: CalibrationOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the execution as JSON, as other commands take it."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read a launch configuration: which model, how many GPUs and which execution it is, and what could not be read.

    Read are scripts and command lines of Megatron-LM, recipes of Megatron-Bridge and NeMo (Python, commands, YAML), and
    configurations of torchtitan, DeepSpeed and MaxText. The frameworks' own silent corrections are applied. With
    --system it is evaluated: its place among all executions of that model, batch and number of GPUs, how much faster
    the best is, and which changes lead there with the framework's flags: what a flag or two bring comes first. Of a
    config.json of Hugging Face the model is told.

    \b
    Examples:
      shardscape import pretrain_gpt.sh
      shardscape import pretrain_gpt.sh --system h100_80g_sxm --limit weight_offload=no --limit optimizer_offload=no
      shardscape import pretrain_gpt.sh --procs 128 --out execution.json
      shardscape import recipe.py --framework megatron-bridge --json

    \b
    JSON: framework, version, num_procs, model_name (in the library, or null), model, execution, left (for other
    sources to say), not_modelled, unread, remarks, refused (why the framework would not start it); with --system also
    standing: runs, reason_text, sample_rate, best_sample_rate, faster (how many are), feasible, total, steps (changes,
    flags, sample_rate, gain), execution and best (fields and statistics).
    """
    from engine.launch import LaunchError, OnlyModelError, named_shape, read

    if system is None and (limit or cost_model or calibration):
        raise LaunchError("--limit, --cost-model and --calibration are about a system; name it with --system.")
    try:
        found = read(file, framework=framework, gpus=procs)
    except OnlyModelError:
        _tell_model(file, system, procs, json)
        return
    named = named_shape(found.model)
    stands = None if system is None else _standing(found, file, system, model, limit, cost_model, calibration)
    if json:
        from engine.questions.standings import standing_document

        place = {} if stands is None else {"standing": standing_document(stands, found.framework)}
        write(as_json({
            "framework": found.framework, "version": found.version, "num_procs": found.num_procs, "model_name": named,
            "model": found.model, "execution": found.execution, "left": list(found.left),
            "not_modelled": list(found.not_modelled), "unread": list(found.unread), "remarks": list(found.remarks),
            "refused": found.refused, **place,
        }))  # fmt: skip
    else:
        _print_reading(found, named)
        if stands is not None:
            _print_standing(stands, found.framework)
    if out is not None:
        _write_execution(found, out)


def _tell_model(file: Path, system: str | None, procs: int | None, json: bool) -> None:
    """Tells which model a file is that describes one and nothing of how it is trained, and how to go on."""
    import models
    from engine.launch import named_shape, shape_of

    model = models.load(file)
    shape = shape_of(model)
    named = named_shape(shape)
    if json:
        write(as_json({"framework": None, "model_name": named, "model": shape, "execution": {}}))
        return
    size = "" if model.parameters is None else f", {model.parameters / 1e9:.4g} billion parameters"
    known = "which the library does not have" if named is None else f"{named} of the library"
    write(f"Hugging Face config.json: {model.title}, {known}; {shape['layers']:,} blocks{size}, sequences of "
          f"{model.seq_size:,} tokens")  # fmt: skip
    write("It says how a model is built, not how it is trained. Wherever a command asks for a model, give the file:")
    write()
    write(f"  shardscape best {shlex.quote(str(file))} {shlex.quote(system or 'h100_80g_sxm')} --procs {procs or 64} "
          "--max-batch 256 --datatype bfloat16")  # fmt: skip


def _standing(
    found: Reading, file: Path, system: str, model: str | None, limit: list[str] | None, cost_model: str | None,
    calibration: str | None,
) -> Standing:  # fmt: skip
    """Where the execution of a file stands on a system."""
    from engine.cli.limits import parse_limits
    from engine.launch import model_of_shape, standing

    network: Any = model if model is not None else model_of_shape(found.model, file.stem)
    return standing(
        found.execution, network, system, limits=parse_limits(limit or []), cost_model=cost_model,
        calibration=calibration_of(calibration),
    )  # fmt: skip


def _print_standing(stands: Standing, framework: str) -> None:
    """Prints where an execution stands, and what leads to the best: fields, and below them the framework's flags."""
    import numpy as np

    from engine.columns import BESIDE_RATE
    from engine.economics import derived_of
    from engine.launch import flag_changes

    scenario, best, row = stands.scenario, stands.best, stands.row
    machine = scenario.system.title or scenario.system.name
    write()
    write(f"On {scenario.num_procs:,} x {machine}, batch {scenario.max_batch_size:,}, {scenario.datatype}; cost model "
          f"{scenario.cost_model}")  # fmt: skip
    if stands.runs:
        known, rate = derived_of(scenario), np.array(float(row["sample_rate"]))
        told = ", ".join(f"{quantity(one.column, one.of(rate))} {unit_of(one.column)} {one.column.short}"
                         for one in (known[name] for name in BESIDE_RATE[:2]))  # fmt: skip
        write(f"{float(rate):.4g} samples/s, {told}, {float(row['total_time']):.4g} s a step, "
              f"{float(row['proc_mem_tier1_cap_req']) / 2**30:.4g} GiB of HBM")  # fmt: skip
        if stands.faster is not None and stands.feasible is not None:
            write(f"{stands.faster:,} of {stands.feasible:,} feasible executions are faster.")
    else:
        write(f"It does not run there. {row['reason_text']}")
    if best is None:
        write("Nothing runs there.")
        return
    distance = stands.distance
    if distance is not None and distance < 5e-4:
        write("Nothing is faster.")
        return
    more = "" if distance is None else f", {distance:.1%} more"
    write(f"The best reaches {float(best['sample_rate']):.4g} samples/s{more}. What leads there:")
    write()
    rows = []
    for step, flags in zip(stands.steps, flag_changes(stands, framework=framework), strict=True):
        gain = "makes it run" if step.gain == float("inf") else f"{step.gain:+.1%}"
        rows.append((gain, f"{step.rate:.4g}", ", ".join(map(str, step.changes))))
        if flags:
            rows.append(("", "", f"  {', '.join(map(str, flags))}"))
    write(text_table(("gain", "samples/s", "change"), rows, left=(2,)))


def _print_reading(found: Reading, named: str | None) -> None:
    from engine.columns import ALL_FIELDS
    from engine.columns.fields import CHOICE_LABELS
    from engine.launch import FRAMEWORKS

    framework = FRAMEWORKS[found.framework]
    gpus = f"{found.num_procs:,} GPUs" if found.num_procs else "a number of GPUs that it does not say"
    network = named or (
        f"a model of {found.model['layers']} layers" if "layers" in found.model else "a model it does not describe"
    )
    write(f"{framework.title}: {network} on {gpus}")
    rows = [
        (column.label, _shown(found.execution[column.name], CHOICE_LABELS.get(column.name, {})),
         framework.terms.get(column.name, ""))
        for column in ALL_FIELDS if column.name in found.execution
    ]  # fmt: skip
    write()
    write(text_table(("field", "value", "said by"), rows, left=(0, 1, 2)))
    lists = {
        "The framework would not start it": [found.refused] if found.refused else [],
        "Left to other sources": found.left,
        "Set there, not modelled here": found.not_modelled,
        "Not read": found.unread,
        "Remarks": found.remarks,
    }
    _tell(framework.title, found.version, lists)


def _shown(value: Any, labels: Mapping[str, str]) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else labels.get(str(value), str(value))


def _tell(title: str, version: str, lists: Mapping[str, Sequence[str]]) -> None:
    """Prints lists of sentences where errors go; those without any are left out."""
    write(f"{title}, as of {version}.", stream=sys.stderr)
    for heading, sentences in lists.items():
        if sentences:
            write(f"{heading}:", stream=sys.stderr)
            for each in sentences:
                write(f"- {each}", stream=sys.stderr)


def execution_in(file: Path, row: int | None) -> tuple[dict[str, Any], str | None, str]:
    """Returns an execution of a file, the model's name where the file is what a command printed, and a sentence on
    which of its executions it is, empty where it has one only.

    Args:
        file: executions as a table, or what `best --json` and `explore --json` print.
        row: which, counted from 0; None for the recommended one, or the first where none is recommended.

    Raises `engine.launch.LaunchError` where a file says that nothing is recommended and no row is asked for.
    """
    from engine.cli.commands.layers import chosen_execution

    document = _results_in(file)
    named = document.get("model") if isinstance(document, dict) else None
    named = named if isinstance(named, str) else None
    if isinstance(document, dict) and "recommended" in document:
        if row is None:
            return _recommended(document["recommended"], file), named, RECOMMENDED
        which = FASTEST if row == 0 else f"Row {row} of the fastest is written."
    else:
        which = ""
    rows = document.get("top", [document]) if isinstance(document, dict) else document
    if isinstance(rows, list) and (row or 0) < len(rows) and isinstance(rows[row or 0], dict):
        return dict(rows[row or 0]), named, which
    return chosen_execution(file, row or 0), None, ""


def _results_in(file: Path) -> Any:
    """What a JSON file holds; None where it is no JSON, which the reader of executions says."""
    try:
        if file.suffix.lower() == ".json" and file.is_file() and file.stat().st_size <= LARGEST_RESULT:
            return json_module.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        pass
    return None


def _recommended(found: Any, file: Path) -> dict[str, Any]:
    """The recommended execution of what `best --recommended --json` prints, or the verb `recommend` answers."""
    from engine.launch import LaunchError

    own = found.get("execution", found) if isinstance(found, dict) else found
    if not isinstance(own, dict):
        raise LaunchError(f"{file} recommends no execution; --fastest writes the fastest one.")
    return dict(own)


def _write_files(made: Written, folder: Path) -> None:
    from engine.executions.files import TableWriteError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in made.files:
            (folder / each.name).write_text(each.text, "utf-8")
            write(f"{folder / each.name} has {len(each.text.encode()):,} bytes.", stream=sys.stderr)
    except OSError as problem:
        told = (problem.strerror or type(problem).__name__).lower()
        raise TableWriteError(f"{folder} cannot be written ({told}); name a folder.") from None


def _write_execution(found: Reading, file: Path) -> None:
    from engine.executions.files import TableWriteError
    from engine.launch import evaluable

    # Other commands ask for all fields; those that no framework speaks of have no bearing on the calibrated model.
    try:
        file.write_text(as_json(evaluable(found.execution)) + "\n", "utf-8")
    except OSError as problem:
        told = (problem.strerror or type(problem).__name__).lower()
        raise TableWriteError(f"{file} cannot be written ({told}).") from None
