"""The commands `export` and `import`: executions and deployments as launch configurations, and back."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.commands.post_training_launch import import_run, read_run_file
from engine.cli.commands.serving_launch import deployment_question, print_deployment, read_serving_file
from engine.cli.commands.standing import print_standing
from engine.cli.options import JsonOption
from engine.cli.output import as_json, text_table, write_line
from engine.cli.question_options import UnfinishedQuestion, asks
from engine.questions.documents.executions import ExportQuestion, ReadingTermsQuestion, StandingQuestion
from engine.questions.documents.serving import (
    DeploymentExportQuestion,
    DeploymentImportQuestion,
    DeploymentTermsQuestion,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.launch import LaunchError, LaunchReading, Standing, Written
    from models.loader import ModelLike

__all__ = ["execution_in", "export_execution", "import_configuration"]

RECOMMENDED: Final = "The recommended execution is written; --fastest writes the fastest."
FASTEST: Final = "The fastest execution is written; without --fastest and --row the recommended one is."
ANOTHER: Final = "Export another one with --row, or the result of `best --framework NAME --json`."
LARGEST_RESULT: Final = 50_000_000
"""Largest JSON file of results that is looked into [bytes]."""


@asks(ExportQuestion, leave_out=("execution",), optional=("model",))
@asks(DeploymentExportQuestion, leave_out=("deployment", "model", "target", "prefill"))
def export_execution(
    asked: UnfinishedQuestion[ExportQuestion],
    serving: UnfinishedQuestion[DeploymentExportQuestion],
    execution: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="File with executions or deployments, or JSON of `best`, `explore` or `inference`."
        ),
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
    prefill: Annotated[
        Path | None,
        typer.Option("--prefill", metavar="FILE", help="Deployment of the pool that processes prompts."),
    ] = None,
    stated: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Field of a deployment; counts more than the file."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write an execution for a training framework, or a deployment for a serving engine: every flag and file.

    What the program cannot say, and what the configuration sets without a field here, is listed where errors go, and
    as comments in the file. FILE is a CSV, Parquet or JSON file, or what `best --json`, `explore --json` and
    `inference --json` print, which names the model, or holds it where it is one of your own. Of
    `best --recommended --json` the recommended execution is written; --fastest and --row ask for another one.

    Deployments are written for vllm, sglang and trtllm as commands, for kubernetes, llm-d and dynamo as manifests. They
    need no file: --set gives their fields.

    \b
    Examples:
      shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 256 --datatype bfloat16 --json > best.json
      shardscape export best.json --to megatron > launch.sh
      shardscape export executions.csv --model llama-3-70B --to megatron-bridge --row 3 --out launch
      shardscape export execution.json --model deepseek-v3 --to torchtitan --nodes 32
      shardscape inference llama-3-70B h100_80g_sxm --procs 8 --prompt 1024 --output 256 --json > served.json
      shardscape export served.json --to vllm > serve.sh
      shardscape service llama-3-70B h100_80g_sxm --rate 40 --prompt 1024 --output 256 --ttft 1 --tpot 0.05 \\
        --disaggregated either --json > service.json
      shardscape export service.json --to dynamo > graph.yaml
      shardscape export --to dynamo --engine sglang --model deepseek-v3 --set tensor_par=1 --set expert_par=16 \\
        --set replicas=16 --set batch=64 --setting memory_fraction=0.85

    \b
    JSON of a deployment: target, engine_version, files, flags (by pool), not_expressible, unsaid (fields), remarks.
    JSON of an execution: framework, version, files (text by name), flags (value by name), not_expressible,
    not_modelled, remarks, written (which execution it is, in words).
    """
    import models
    from engine.launch import FRAMEWORKS, LIST_TITLES, TARGETS, LaunchError, is_serving_target
    from engine.launch.contract import RefusedExecutionError
    from engine.questions.executions import write_launch, written_document
    from engine.questions.plain import plain
    from models.documents import near_matches, shown

    if fastest and row:
        raise LaunchError(f"--fastest is row 0 and --row is {row}; give one of them.")
    if is_serving_target(str(asked.said["framework"])):
        _export_deployment(asked, serving, execution, 0 if fastest else row, prefill, stated or [], out, json)
        return
    near = near_matches(str(asked.said["framework"]), [*FRAMEWORKS, *TARGETS])
    if near and near[0] in TARGETS:
        raise LaunchError(f"There is no target {shown(asked.said['framework'])}; did you mean {near[0]}?")
    if prefill is not None or stated or any(serving.said[name] for name in ("engine", "settings", "checkpoint")):
        raise LaunchError(
            "--engine, --setting, --checkpoint, --prefill and --set are about deployments; name a target of "
            f"{', '.join(TARGETS)}."
        )
    if execution is None:
        raise LaunchError("Name the file with the execution, such as the JSON of best.")
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


def _export_deployment(
    asked: UnfinishedQuestion[ExportQuestion],
    serving: UnfinishedQuestion[DeploymentExportQuestion],
    file: Path | None,
    row: int | None,
    prefill: Path | None,
    stated: list[str],
    out: Path | None,
    json: bool,
) -> None:
    import models
    from engine.cli.limits import parse_values
    from engine.launch import LIST_TITLES, LaunchError
    from engine.questions.serving_launch import export_deployment, written_document

    if asked.said["nodes"] is not None:
        raise LaunchError("--nodes is about executions; give --gpus-per-node for a deployment.")
    own, named = (dict[str, Any](), None) if file is None else _deployment_in(file, row)
    other = own.pop("prefill", None)
    if prefill is not None:
        other = _deployment_in(prefill, None)[0]
    network = asked.said["model"] or (models.to_document(named) if isinstance(named, models.Model) else named)
    if network is None:
        raise LaunchError("Nothing names the model; give it with --model.")
    question = deployment_question(
        serving,
        target=str(asked.said["framework"]),
        model=network,
        row=own,
        stated=parse_values(stated),
        prefill=other,
    )
    made = export_deployment(question)
    if json:
        write_line(as_json(written_document(made)))
        return
    if out is None:
        write_line(made.text)
    else:
        _write_files(made, out)
    lists = {title: getattr(made, which) for which, title in LIST_TITLES.items()}
    _print_lists(made.title, made.version, lists)


def _deployment_in(file: Path, place: int | None) -> tuple[dict[str, Any], ModelLike | None]:
    """Return a deployment of a file, and the model that the file names; of two pools, the one that decodes, with the
    other as `prefill`. Without a place it is the one that the file's question chose, or else the recommended one."""
    document, row = _results_in(file), place or 0
    if isinstance(document, dict) and place is None:
        for name in ("chosen", "recommended"):
            if isinstance(document.get(name), dict):
                return dict(document[name]), _model_in(document, str(file))
    if isinstance(document, dict) and document.get("recommended") == "disaggregated":
        pairs = (document.get("disaggregated") or {}).get("top") or []
        if row < len(pairs):
            prefill, decode = (_all_copies(pairs[row][name]) for name in ("prefill", "decode"))
            return {**decode, "prefill": prefill}, _model_in(document, str(file))
    if isinstance(document, dict) and isinstance(document.get("frontier"), list):
        document = {**document, "top": document["frontier"]}
    if isinstance(document, dict) and isinstance(document.get("deployment"), dict):
        return dict(document["deployment"]), document.get("model_name")
    named = _model_in(document, str(file))
    rows = document.get("top", [document]) if isinstance(document, dict) else document
    if isinstance(rows, list) and row < len(rows) and isinstance(rows[row], dict):
        return _all_copies(rows[row]), named
    return dict(execution_in(file, row)[0]), named


def _all_copies(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deployment with the replicas of all its copies in a service."""
    copies, replicas = row.get("deployments", 1), row.get("replicas", 1)
    if isinstance(copies, int) and isinstance(replicas, int):
        return {**row, "replicas": copies * replicas}
    return dict(row)


@asks(ReadingTermsQuestion)
@asks(DeploymentTermsQuestion)
@asks(StandingQuestion, leave_out=("execution", "model", "framework", "statistics"), optional=("system",))
def import_configuration(
    terms: ReadingTermsQuestion,
    serving: DeploymentTermsQuestion,
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
    all executions of that model, batch and number of GPUs, how much faster the recommended one is (--figures-of
    fastest: the fastest), and which steps lead there with the framework's flags, one or two flags at a time first.
    Of a config.json of Hugging Face the model is shown.

    Of serving engines, commands and scripts of vLLM, SGLang and TensorRT-LLM are read, manifests of Kubernetes, llm-d
    and Dynamo, recipes of srt-slurm and engines' own YAML. --env gives shell variables; with --system the deployment is
    evaluated, with --set for prompt, output and other fields that it leaves open.

    Of reinforcement learning, configurations of NeMo-RL and scripts of verl and slime are read as a question of
    `plan post-training`; --set gives values that they lack, such as mean and prompt_tokens, and --system plans it.

    \b
    Examples:
      shardscape import grpo.yaml --set mean=1200 --set prompt_tokens=128 --system h100_80g_sxm
      shardscape import pretrain_gpt.sh
      shardscape import pretrain_gpt.sh --system h100_80g_sxm --limit weight_offload=no --limit optimizer_offload=no
      shardscape import pretrain_gpt.sh --procs 128 --out execution.json
      shardscape import pretrain_gpt.sh --set tensor_par=4 --set batch_size=512 --system h100_80g_sxm
      shardscape import recipe.py --framework megatron-bridge --json
      shardscape import serve.sh --env TP=8
      shardscape import deploy.yaml --system h100_80g_sxm --set prompt=1024 --set output=256 --set batch=64

    \b
    JSON of reinforcement learning is the answer to import_post_training: question, missing, assumed, origins, plan.
    JSON of a deployment is the answer to import_deployment: engine, checkpoint, deployment or pools, left,
    not_modelled, without_effect, unread, remarks, figures (with --system) and more.
    JSON: framework, version, num_procs, model_name (in the library, or null), model, execution, origins (kind,
    words, file and line by field: stated, default or unknown), left (open, or for other sources to say),
    not_modelled, without_effect, unread, remarks, recipes, not_represented (of the model), refused (why the
    framework would not start it); with --system also assumed (values that nothing states) and
    standing: runs, reason_text, sample_rate, best_sample_rate, faster (how many are), feasible, total, target
    (the recommended execution, its gain over the run), steps (changes, flags, sample_rate, gain, fit), execution and
    best (fields and statistics).
    """
    import models
    from engine.launch import LaunchError, OnlyModelError, assumed_sentence, read, settle
    from engine.questions.executions import named_model, reading_options

    system = rank.said["system"]
    run = None if serving.engine is not None else read_run_file(file, terms.framework)
    if run is not None:
        if out is not None:
            raise LaunchError(
                "--out writes an execution; --json prints the question of a run of reinforcement learning."
            )
        import_run(
            file,
            run,
            framework=terms.framework,
            model=terms.model,
            stated={**terms.stated, **({} if terms.num_procs is None else {"num_procs": terms.num_procs})},
            takes_defaults=terms.takes_defaults,
            system=system,
            json=json,
        )
        return
    text = None if terms.framework is not None else read_serving_file(file)
    if text is not None or serving.engine is not None:
        _import_deployment(file, text, terms, serving, system, out, json)
        return
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


def _import_deployment(
    file: Path,
    text: str | None,
    terms: ReadingTermsQuestion,
    serving: DeploymentTermsQuestion,
    system: Any,
    out: Path | None,
    json: bool,
) -> None:
    from engine.launch import LaunchError
    from engine.questions.plain import plain
    from engine.questions.serving_launch import deployment_rows, read_deployment

    if text is None:
        try:
            text = file.read_text("utf-8-sig")
        except (OSError, ValueError) as problem:
            raise LaunchError(
                f"{file} cannot be read ({type(problem).__name__}); name a launch configuration."
            ) from None
    # A file may be longer than the text of a question.
    asked = DeploymentImportQuestion.model_construct(
        engine=serving.engine,
        variables=serving.variables,
        text=text,
        name=file.name,
        num_procs=terms.num_procs,
        model=terms.model,
        stated=terms.stated,
        system=system,
    )
    found = read_deployment(asked)
    try:
        print_deployment(found, asked, json)
    except LaunchError as problem:
        told = str(problem).replace("State them.", "State them with --set FIELD=VALUE.")
        raise LaunchError(told) from None
    if out is not None:
        rows = deployment_rows(found, asked.stated)
        _write_json(plain(next(iter(rows.values())) if len(rows) == 1 else rows), out)


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
    question = rank.finish(execution=plain(evaluable(found)), model=model, framework=found.framework)
    return find_standing(question)


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
    if isinstance(document, dict) and "shown" in document and "recommended" not in document:
        shown = document["shown"]
        if row is None and isinstance(shown, dict) and isinstance(shown.get("execution"), dict):
            which = RECOMMENDED if shown.get("figures_of") == "recommended" else str(shown.get("remark") or "")
            return dict(shown["execution"]), named, which
        which = ""
        if row is not None:
            which = FASTEST if row == 0 else f"Row {row} of the fastest is written."
    elif isinstance(document, dict) and "recommended" in document:
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
    from engine.launch import evaluable

    _write_json(evaluable(found), file)


def _write_json(document: Any, file: Path) -> None:
    from engine.executions.files import TableWriteError

    try:
        file.write_text(as_json(document) + "\n", "utf-8")
    except OSError as problem:
        told = (problem.strerror or type(problem).__name__).lower()
        raise TableWriteError(f"{file} cannot be written ({told}).") from None
