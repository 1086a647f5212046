"""The commands `export` and `import`: executions as launch configurations of training frameworks, and back."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.commands.standing import print_standing
from engine.cli.options import JsonOption
from engine.cli.output import as_json, text_table, write_line
from engine.cli.question_options import UnfinishedQuestion, asks
from engine.questions.documents.executions import ExportQuestion, ReadingTermsQuestion, StandingQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.launch import LaunchError, LaunchReading, Standing, Written
    from models.loader import ModelLike

__all__ = ["execution_in", "export_execution", "import_configuration"]

RECOMMENDED: Final = "The recommended execution is written; --fastest writes the fastest."
FASTEST: Final = "The fastest execution is written; without --fastest and --row the recommended one is."
ANOTHER: Final = "Export another one with --row, or the result of `best --recommended --json`."
LARGEST_RESULT: Final = 50_000_000
"""Largest JSON file of results that is looked into [bytes]."""


@asks(ExportQuestion, leave_out=("execution",), optional=("model",))
def export_execution(
    asked: UnfinishedQuestion[ExportQuestion],
    execution: Annotated[
        Path, typer.Argument(metavar="EXECUTION", help="File with executions, or JSON of `best` or `explore`.")
    ],
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
    import models
    from engine.launch import LIST_TITLES, LaunchError
    from engine.launch.contract import RefusedExecutionError
    from engine.questions.executions import write_launch, written_document
    from engine.questions.plain import plain

    if fastest and row:
        raise LaunchError(f"--fastest is row 0 and --row is {row}; give one of them.")
    chosen, named, which = execution_in(execution, 0 if fastest else row)
    network = asked.said["model"] or (models.to_document(named) if isinstance(named, models.Model) else named)
    if network is None:
        raise LaunchError(f"{execution} does not name its model; give it with --model.")
    try:
        made = write_launch(asked.finish(execution=plain(chosen), model=network), note=which)
    except RefusedExecutionError as problem:
        if which == RECOMMENDED:
            raise
        raise LaunchError(f"{problem} {ANOTHER}") from None
    if json:
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
        {title: getattr(made, which) for which, title in LIST_TITLES.items()},
    )


@asks(ReadingTermsQuestion)
@asks(StandingQuestion, leave_out=("execution", "model", "framework", "statistics"), optional=("system",))
def import_configuration(
    terms: ReadingTermsQuestion,
    rank: UnfinishedQuestion[StandingQuestion],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Launch script, recipe or configuration.")],
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
    from engine.launch import LaunchError, OnlyModelError, assumed_sentence, read, settle
    from engine.questions.executions import named_model, reading_options

    system = rank.said["system"]
    if system is None and any(rank.said[name] for name in ("limits", "cost_model", "calibration")):
        raise LaunchError("--limit, --cost-model and --calibration are about a system; name it with --system.")
    try:
        found = read(file, **reading_options(terms))
    except OnlyModelError:
        _print_model(file, system, terms.num_procs, json)
        return
    stands, assumed = None, {}
    problem: LaunchError | None = None
    if system is not None or out is not None:
        try:
            assumed = settle(found)[1]
            if system is not None:
                stands = _find_standing(found, file, terms, rank)
        except LaunchError as error:
            problem = _how_to_state(error)
    named, left_out = named_model(found, terms)
    if stands is not None:
        left_out = list(models.unrepresented(stands.scenario.model))
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
            print_standing(stands, found.framework)
    if problem is not None:
        raise problem
    if out is not None:
        _write_execution(found, out)


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


def _print_model(file: Path, system: str | None, procs: int | None, json: bool) -> None:
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
                    "notes": list(model.notes),
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
    for sentence in model.notes:
        write_line(f"Note: {sentence}")
    write_line(
        "It says how a model is built, not how it is trained. Wherever a command asks for a model, give the file:"
    )
    write_line()
    write_line(
        f"  shardscape best {shlex.quote(str(file))} {shlex.quote(system or 'h100_80g_sxm')} --procs {procs or 64} "
        "--max-batch 256 --datatype bfloat16"
    )


def _find_standing(
    found: LaunchReading, file: Path, terms: ReadingTermsQuestion, rank: UnfinishedQuestion[StandingQuestion]
) -> Standing:
    """Return the rank of a file's execution on a system."""
    import models
    from engine.launch import evaluable, network_of
    from engine.questions.plain import plain
    from engine.questions.scenario_documents import found_model
    from engine.questions.standings import find_standing

    named = None if terms.model is None else found_model(terms.model)
    model = models.to_document(network_of(found, named, file.stem))
    return find_standing(rank.finish(execution=plain(evaluable(found)), model=model))


def _print_reading(found: LaunchReading, named: str | None, file: str, left_out: Sequence[str]) -> None:
    from engine.launch import FRAMEWORKS, LIST_TITLES, origin_rows
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
        LIST_TITLES["not_modelled"]: found.not_modelled,
        "Set, irrelevant to speed": [", ".join(found.without_effect)] if found.without_effect else [],
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
