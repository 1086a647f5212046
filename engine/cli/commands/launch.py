"""The commands `export` and `import`: executions as launch configurations of training frameworks, and back."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import CalibrationOption, CostModelOption, JsonOption, LimitOption
from engine.cli.output import as_json, calibration_of, format_quantity, text_table, unit_of, write_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.launch import LaunchError, LaunchReading, Standing, Written
    from models.loader import ModelLike

__all__ = ["execution_in", "export_execution", "import_configuration"]

FRAMEWORK_WORDS: Final = "megatron|megatron-bridge|torchtitan|deepspeed|maxtext"
RECOMMENDED: Final = "The recommended execution is written; --fastest writes the fastest."
FASTEST: Final = "The fastest execution is written; without --fastest and --row the recommended one is."
ANOTHER: Final = "Export another one with --row, or the result of `best --recommended --json`."
LARGEST_RESULT: Final = 50_000_000
"""Largest JSON file of results that is looked into [bytes]."""


def export_execution(
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
    which names the model, or holds it where it is one of your own. Of `best --recommended --json` the recommended
    execution is written; --fastest and --row ask for another one.

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
    from engine.launch.contract import RefusedExecutionError

    if fastest and row:
        raise LaunchError(f"--fastest is row 0 and --row is {row}; give one of them.")
    chosen, named, which = execution_in(execution, 0 if fastest else row)
    network: ModelLike | None = model or named
    if network is None:
        raise LaunchError(f"{execution} does not name its model; give it with --model.")
    try:
        made = written_for(chosen, network, framework=framework, nodes=nodes, note=which)
    except RefusedExecutionError as problem:
        if which == RECOMMENDED:
            raise
        raise LaunchError(f"{problem} {ANOTHER}") from None
    if json:
        from engine.questions.executions import written_document

        write_line(as_json({**written_document(made), "written": which}))
        return
    if out is None:
        write_line(made.text)
    else:
        _write_files(made, out)
    if which:
        write_line(which, stream=sys.stderr)
    _print_lists(
        made.title,
        made.version,
        {
            "Not expressible there": made.not_expressible,
            "Set there, not modelled": made.not_modelled,
            "Remarks": made.remarks,
        },
    )


def import_configuration(
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
        str | None,
        typer.Option("--model", metavar="MODEL", help="Its model; counts more than what the file describes."),
    ] = None,
    stated: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Value of a field that the file leaves open; repeatable."),
    ] = None,
    defaults: Annotated[
        bool,
        typer.Option("--defaults", help="Take the framework's defaults for flags in files that are not at hand."),
    ] = False,
    recipe: Annotated[
        str | None, typer.Option("--recipe", metavar="NAME", help="Which recipe of a Python file that has several.")
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
    """Read a launch configuration: its model, number of GPUs and execution, and everything that could not be read.

    Read are scripts and command lines of Megatron-LM and Megatron-DeepSpeed, recipes of Megatron-Bridge and NeMo
    (Python, commands, YAML), and configurations of torchtitan, DeepSpeed and MaxText. The frameworks' own silent
    corrections are applied. Every value is stated by a flag, a default of the framework, or open, where the file
    takes it from outside: state it with --procs, --model or --set. With --system it is evaluated: its place among
    all executions of that model, batch and number of GPUs, how much faster the best is, and which changes lead
    there with the framework's flags: changes of one or two flags come first. Of a config.json of Hugging Face the
    model is shown.

    \b
    Examples:
      shardscape import pretrain_gpt.sh
      shardscape import pretrain_gpt.sh --system h100_80g_sxm --limit weight_offload=no --limit optimizer_offload=no
      shardscape import pretrain_gpt.sh --procs 128 --out execution.json
      shardscape import pretrain_gpt.sh --set tensor_par=4 --set batch_size=512 --system h100_80g_sxm
      shardscape import recipe.py --framework megatron-bridge --json

    \b
    JSON: framework, version, num_procs, model_name (in the library, or null), model, execution, origins (kind,
    words, file and line by field: stated, default or unknown), left (open, or for other sources to say),
    not_modelled, without_effect, unread, remarks, recipes, not_represented (of the model), refused (why the
    framework would not start it); with --system also assumed (values that nothing states) and
    standing: runs, reason_text, sample_rate, best_sample_rate, faster (how many are), feasible, total, steps
    (changes, flags, sample_rate, gain), execution and best (fields and statistics).
    """
    import models
    from engine.launch import LaunchError, OnlyModelError, assumed_sentence, named_shape, read, settle

    if system is None and (limit or cost_model or calibration):
        raise LaunchError("--limit, --cost-model and --calibration are about a system; name it with --system.")
    try:
        found = read(
            file,
            framework=framework,
            gpus=procs,
            recipe=recipe,
            stated=_parse_stated_values(stated or []),
            model=model,
            takes_defaults=defaults,
        )
    except OnlyModelError:
        _tell_model(file, system, procs, json)
        return
    named = model if model is not None else named_shape(found.model)
    stands, assumed = None, {}
    problem: LaunchError | None = None
    if system is not None or out is not None:
        try:
            assumed = settle(found)[1]
            if system is not None:
                stands = _find_standing(found, file, system, model, limit, cost_model, calibration)
        except LaunchError as error:
            problem = _how_to_state(error)
    network = stands.scenario.model if stands is not None else None if named is None else models.load(named)
    left_out = [] if network is None else list(models.unrepresented(network))
    if json:
        from engine.questions.standings import reading_document, standing_document

        place = {} if stands is None else {"assumed": assumed, "standing": standing_document(stands, found.framework)}
        write_line(as_json({**reading_document(found, named, left_out), **place}))
    else:
        _print_reading(found, named, file.name, left_out)
        if told := assumed_sentence(assumed):
            write_line()
            write_line(f"{told} State them with --set.")
        if stands is not None:
            _print_standing(stands, found.framework)
    if problem is not None:
        raise problem
    if out is not None:
        _write_execution(found, out)


def _parse_stated_values(given: list[str]) -> dict[str, Any]:
    """Values by field of --set FIELD=VALUE."""
    from engine.launch import LaunchError
    from models.documents import shown

    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise LaunchError(f"--set is {shown(each)}; it must be FIELD=VALUE, such as tensor_par=4.")
        text = value.strip()
        found[name.strip()] = int(text) if text.isdecimal() and len(text) < 12 else text
    return found


def _how_to_state(problem: LaunchError) -> LaunchError:
    """Return a problem with the options that set open fields."""
    from engine.launch import LaunchError, OpenFieldsError

    if not isinstance(problem, OpenFieldsError):
        return problem
    options = [
        "--procs N" if name == "num_procs" else "--model MODEL" if name == "model" else f"--set {name}=VALUE"
        for name in problem.fields
    ]
    hidden = len(options) > 6
    more = " Or take the framework's defaults with --defaults." if hidden else ""
    return LaunchError(f"{problem} State {' '.join(options[:12])}{' ...' if len(options) > 12 else ''}.{more}")


def _tell_model(file: Path, system: str | None, procs: int | None, json: bool) -> None:
    """Print the model of a file that describes only a model, and the next command."""
    import models
    from engine.launch import named_shape, shape_of

    model = models.load(file)
    shape = shape_of(model)
    named = named_shape(shape)
    left_out = models.unrepresented(model)
    if json:
        write_line(
            as_json(
                {
                    "framework": None,
                    "model_name": named,
                    "model": shape,
                    "not_represented": left_out,
                    "execution": {},
                }
            )
        )
        return
    size = "" if model.parameters is None else f", {model.parameters / 1e9:.4g} billion parameters"
    known = "which the library does not have" if named is None else f"{named} of the library"
    write_line(
        f"Hugging Face config.json: {model.title}, {known}; {shape['layers']:,} blocks{size}, sequences of "
        f"{model.seq_size:,} tokens"
    )
    for sentence in left_out:
        write_line(f"Not represented: {sentence}")
    write_line(
        "It says how a model is built, not how it is trained. Wherever a command asks for a model, give the file:"
    )
    write_line()
    write_line(
        f"  shardscape best {shlex.quote(str(file))} {shlex.quote(system or 'h100_80g_sxm')} --procs {procs or 64} "
        "--max-batch 256 --datatype bfloat16"
    )


def _find_standing(
    found: LaunchReading,
    file: Path,
    system: str,
    model: str | None,
    limit: list[str] | None,
    cost_model: str | None,
    calibration: str | None,
) -> Standing:
    """Return the rank of a file's execution on a system."""
    from engine.cli.limits import parse_limits
    from engine.launch import evaluable, network_of, standing

    return standing(
        evaluable(found),
        network_of(found, model, file.stem),
        system,
        limits=parse_limits(limit or []),
        cost_model=cost_model,
        calibration=calibration_of(calibration),
    )


def _print_standing(stands: Standing, framework: str) -> None:
    """Prints where an execution stands, and what leads to the best: fields, and below them the framework's flags."""
    import numpy as np

    from engine.columns import BESIDE_RATE
    from engine.economics import derived_of
    from engine.launch import flag_changes

    scenario, best, row = stands.scenario, stands.best, stands.row
    machine = scenario.system.title or scenario.system.name
    write_line()
    write_line(
        f"On {scenario.num_procs:,} x {machine}, batch {scenario.max_batch_size:,}, {scenario.datatype}; cost model "
        f"{scenario.cost_model}"
    )
    if stands.runs:
        known, rate = derived_of(scenario), np.array(float(row["sample_rate"]))
        told = ", ".join(
            f"{format_quantity(one.column, one.of(rate))} {unit_of(one.column)} {one.column.short}"
            for one in (known[name] for name in BESIDE_RATE[:2])
        )
        write_line(
            f"{float(rate):.4g} samples/s, {told}, {float(row['total_time']):.4g} s a step, "
            f"{float(row['proc_mem_tier1_cap_req']) / 2**30:.4g} GiB of HBM"
        )
        if stands.faster is not None and stands.feasible is not None:
            write_line(f"{stands.faster:,} of {stands.feasible:,} feasible executions are faster.")
    else:
        write_line(f"It does not run there. {row['reason_text']}")
    if best is None:
        write_line("Nothing runs there.")
        return
    distance = stands.distance
    if distance is not None and distance < 5e-4:
        write_line("Nothing is faster.")
        return
    more = "" if distance is None else f", {distance:.1%} more"
    write_line(f"The best reaches {float(best['sample_rate']):.4g} samples/s{more}. What leads there:")
    write_line()
    rows = []
    for step, flags in zip(stands.steps, flag_changes(stands, framework=framework), strict=True):
        gain = "makes it run" if step.gain == float("inf") else f"{step.gain:+.1%}"
        rows.append((gain, f"{step.rate:.4g}", ", ".join(map(str, step.changes))))
        if flags:
            rows.append(("", "", f"  {', '.join(map(str, flags))}"))
    write_line(text_table(("gain", "samples/s", "change"), rows, left=(2,)))


def _print_reading(found: LaunchReading, named: str | None, file: str, left_out: Sequence[str]) -> None:
    from engine.launch import FRAMEWORKS, origin_rows
    from engine.launch.shapes import SHAPE_WORDS

    framework = FRAMEWORKS[found.framework]
    gpus = f"{found.num_procs:,} GPUs" if found.num_procs else "a number of GPUs that it does not say"
    network = named or (
        f"a model of {found.model['layers']} layers" if "layers" in found.model else "a model it does not describe"
    )
    write_line(f"{found.title or framework.title}: {network} on {gpus}")
    write_line()
    write_line(text_table(("field", "value", "said by"), origin_rows(found, file), left=(0, 1, 2)))
    open_words = [SHAPE_WORDS[name] for name in found.open_fields if name in SHAPE_WORDS and name not in found.model]
    lists = {
        "The framework would not start it": [found.refused] if found.refused else [],
        "Left open, or to other sources": [_with_reason(found, each) for each in found.left],
        "Open in the model's shape": [", ".join(open_words)] if open_words and not named else [],
        "Set there, not modelled here": found.not_modelled,
        "Set there, without effect on a prediction": [", ".join(found.without_effect)] if found.without_effect else [],
        "Not read": found.unread,
        "Remarks": found.remarks,
        "Of the model not represented in figures": left_out,
    }
    _print_lists(found.title or framework.title, found.version, lists)


def _with_reason(found: LaunchReading, name: str) -> str:
    """A field that is open, with the expression that takes its value from outside."""
    origin = found.origins.get(name)
    if origin is None or not origin.words:
        return name
    return f"{name}: {origin.words}" + (f" (line {origin.line})" if origin.line else "")


def _print_lists(title: str, version: str, lists: Mapping[str, Sequence[str]]) -> None:
    """Prints lists of sentences where errors go; those without any are left out."""
    write_line(f"{title}, as of {version}.", stream=sys.stderr)
    for heading, sentences in lists.items():
        if sentences:
            write_line(f"{heading}:", stream=sys.stderr)
            for each in sentences:
                write_line(f"- {each}", stream=sys.stderr)


def execution_in(file: Path, row: int | None) -> tuple[dict[str, Any], ModelLike | None, str]:
    """Return an execution of a file, the model or its name where a command printed the file, and a sentence on which
    of its executions it is, empty where it has one only.

    Args:
        file: executions as a table, or what `best --json` and `explore --json` print.
        row: which, counted from 0; None for the recommended one, or the first where none is recommended.

    Raises `engine.launch.LaunchError` where a file says that nothing is recommended and no row is asked for.
    """
    from engine.cli.commands.layers import chosen_execution

    document = _results_in(file)
    named = _model_in(document, str(file))
    if isinstance(document, dict) and "recommended" in document:
        if row is None:
            return _recommended_execution(document["recommended"], file), named, RECOMMENDED
        which = FASTEST if row == 0 else f"Row {row} of the fastest is written."
    else:
        which = ""
    rows = document.get("top", [document]) if isinstance(document, dict) else document
    if isinstance(rows, list) and (row or 0) < len(rows) and isinstance(rows[row or 0], dict):
        return dict(rows[row or 0]), named, which
    return chosen_execution(file, row or 0), None, ""


def _results_in(file: Path) -> Any:
    """Return the contents of a JSON file; None for other files, which the reader of executions reports."""
    try:
        if file.suffix.lower() == ".json" and file.is_file() and file.stat().st_size <= LARGEST_RESULT:
            return json_module.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        pass
    return None


def _recommended_execution(found: Any, file: Path) -> dict[str, Any]:
    """The recommended execution of what `best --recommended --json` prints, or the verb `recommend` answers."""
    from engine.launch import LaunchError

    own = found.get("execution", found) if isinstance(found, dict) else found
    if not isinstance(own, dict):
        raise LaunchError(f"{file} recommends no execution; --fastest writes the fastest one.")
    return dict(own)


def _model_in(document: Any, where: str) -> ModelLike | None:
    """The model that printed results are of: as a document where it is no model of the library, else its name."""
    import models

    if not isinstance(document, dict):
        return None
    own, named = document.get("model_document"), document.get("model")
    if own is not None:
        return models.load_document(own, f"{where}, model_document")
    return named if isinstance(named, str) else None


def _write_files(made: Written, folder: Path) -> None:
    from engine.executions.files import TableWriteError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in made.files:
            (folder / each.name).write_text(each.text, "utf-8")
            write_line(f"{folder / each.name} has {len(each.text.encode()):,} bytes.", stream=sys.stderr)
    except OSError as problem:
        told = (problem.strerror or type(problem).__name__).lower()
        raise TableWriteError(f"{folder} cannot be written ({told}); name a folder.") from None


def _write_execution(found: LaunchReading, file: Path) -> None:
    from engine.executions.files import TableWriteError
    from engine.launch import evaluable

    try:
        file.write_text(as_json(evaluable(found)) + "\n", "utf-8")
    except OSError as problem:
        told = (problem.strerror or type(problem).__name__).lower()
        raise TableWriteError(f"{file} cannot be written ({told}).") from None
