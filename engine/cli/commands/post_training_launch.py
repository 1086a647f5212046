"""Launch files of reinforcement learning: the part of `plan post-training` and `import` that is about them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.cli.output import as_json, text_table, write_line
from engine.questions.documents.post_training_launch import PostTrainingImportQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.launch.contract import Written

__all__ = ["import_run", "print_written_run", "read_run_file"]

LARGEST_FILE: Final = 2_000_000
_PARENT: Final = re.compile(r"""^defaults\s*:\s*["']?([^"'\s#]{1,400})""", re.MULTILINE)
MOST_PARENTS: Final = 8


def read_run_file(file: Path, framework: str | None) -> str | None:
    """Return the text of a launch file of reinforcement learning; None for another file.

    Args:
        file: to read.
        framework: that the caller names; None where it is to be recognised.
    """
    from engine.launch.post_training import is_run_target, is_run_text

    text = _read_text(file)
    if text is None or (framework is not None and not is_run_target(framework)):
        return None
    return text if framework is not None or is_run_text(text, file.name) else None


def _read_text(file: Path) -> str | None:
    try:
        if not file.is_file() or file.stat().st_size > LARGEST_FILE:
            return None
        return file.read_text("utf-8-sig")
    except (OSError, ValueError):
        return None


def _parent_files(file: Path, text: str) -> dict[str, str]:
    """Return the texts of the recipes that a recipe starts from, by name, as far as they lie where it says."""
    found: dict[str, str] = {}
    for _ in range(MOST_PARENTS):
        named = _PARENT.search(text)
        if named is None:
            break
        file = file.parent / named[1]
        parent = _read_text(file)
        if parent is None or file.name in found:
            break
        found[file.name] = text = parent
    return found


def import_run(
    file: Path,
    text: str,
    *,
    framework: str | None,
    model: Any,
    stated: Mapping[str, Any],
    takes_defaults: bool,
    system: Any,
    json: bool,
) -> None:
    """Print the run of a launch file, and its plan where a system is named.

    Args:
        file: that it is in.
        text: of the file.
        framework: of the file; recognised where None.
        model: overrides the file's.
        stated: values by setting.
        takes_defaults: whether missing files and variables set nothing that is read.
        system: name or document; None to read only.
        json: whether as JSON.

    Raises `engine.launch.LaunchError` and `QuestionError` with a sentence.
    """
    from engine.launch import LIST_TITLES, LaunchError
    from engine.questions.errors import QuestionError
    from engine.questions.post_training_launch import plan_question_of, read_post_training, run_document

    # A file may be longer than the text of a question.
    asked = PostTrainingImportQuestion.model_construct(
        text=text,
        name=file.name,
        files=_parent_files(file, text),
        framework=framework,
        model=model,
        stated=dict(stated),
        takes_defaults=takes_defaults,
        system=system,
    )
    found = read_post_training(asked)
    if json:
        write_line(as_json(_with_options(lambda: run_document(found, asked))))
        return
    document = run_document(found, asked.model_copy(update={"system": None}))
    gpus = document["question"].get("num_procs")
    named = document["question"].get("model") or document["checkpoint"] or "a model that it does not name"
    write_line(f"{found.title}: {named} on {gpus if gpus else 'an open number of'} GPUs")
    write_line()
    rows = [
        (row["setting"], "open" if row["kind"] == "unknown" else _show(row["value"]), _source_of(row))
        for row in document["origins"]
    ]
    write_line(text_table(("setting", "value", "source"), rows, left=(0, 1, 2)))
    lists = {
        "The framework would not start": [document["refused"]] if document["refused"] else [],
        "Left to other sources": [", ".join(document["missing"])] if document["missing"] else [],
        "Assumed, as nothing says it": [
            path if value is None else f"{path} {_show(value)}" for path, value in document["assumed"].items()
        ],
        LIST_TITLES["not_modelled"]: document["not_modelled"],
        "Not read": document["unread"],
        "Remarks": document["remarks"],
    }
    write_line(f"{found.title}, as of {found.version}.", stream=sys.stderr)
    for heading, sentences in lists.items():
        if sentences:
            write_line(f"{heading}:", stream=sys.stderr)
            for each in sentences:
                write_line(f"- {each}", stream=sys.stderr)
    if system is None:
        return
    from engine.cli.commands.plan_post_training import print_answer
    from engine.questions.post_training import find_asked_post_training, post_training_document

    try:
        question = _with_options(lambda: plan_question_of(found, asked))
    except QuestionError as problem:
        raise LaunchError(str(problem)) from None
    write_line()
    print_answer(question, post_training_document(find_asked_post_training(question)))


def _with_options(rule: Any) -> Any:
    from engine.questions.errors import QuestionError

    try:
        return rule()
    except QuestionError as problem:
        told = str(problem).replace("State them.", "State them with --model and --set, such as --set mean=1200.")
        raise QuestionError(told) from None


def _source_of(row: Mapping[str, Any]) -> str:
    if row["kind"] == "unknown":
        return str(row["words"]) or "not said"
    return f"{row['words']} (line {row['line']})" if row["line"] else str(row["words"])


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_written_run(document: Mapping[str, Any], made: Written, out: Path | None) -> None:
    """Print the files of a run, or write them; what the framework cannot express goes where errors go.

    Args:
        document: export as JSON has it.
        made: launch file.
        out: folder for the files; printed where None.

    Raises `engine.launch.LaunchError` for a folder that cannot be written.
    """
    from engine.launch import LIST_TITLES, LaunchError

    if out is None:
        write_line(made.text.rstrip("\n"))
    else:
        try:
            out.mkdir(parents=True, exist_ok=True)
            for each in made.files:
                (out / each.name).write_text(each.text, "utf-8")
                write_line(str(out / each.name))
        except OSError as problem:
            raise LaunchError(f"{out} cannot be written ({type(problem).__name__}); name another folder.") from None
    write_line(
        f"{made.title}, {made.version}: {document['mode'].replace('_', ' ')}, {document['step_s']:.3g} s per step, "
        "modelled.",
        stream=sys.stderr,
    )
    if document["limits"]:
        kept = ", ".join(
            f"{name} {' '.join(map(_show, _listed(values)))}" for name, values in document["limits"].items()
        )
        write_line(f"Searched as {made.title} runs it: {kept}.", stream=sys.stderr)
    for which, heading in LIST_TITLES.items():
        if document[which]:
            write_line(f"{heading}:", stream=sys.stderr)
            for each in document[which]:
                write_line(f"- {each}", stream=sys.stderr)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]
