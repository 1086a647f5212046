"""Launchers of training programs, torchrun, srun, sbatch, deepspeed, mpirun, and the number of GPUs that they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from engine.launch.contract import LaunchOrder
from engine.launch.shell import Call, MissingFile, Script, Word, read_script, slurm

__all__ = ["ScriptLaunch", "comment_text", "launch_of", "script_header", "torchrun_command"]

_TORCHRUN: Final = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch"})
_MPI: Final = frozenset({"mpirun", "mpiexec", "orterun", "prun"})
_OTHERS: Final = frozenset(
    {
        "deepspeed",
        "accelerate",
        "python",
        "python3",
        "singularity",
        "apptainer",
        "docker",
        "podman",
        "enroot",
        "shifter",
        "env",
        "nsys",
        "ncu",
        "numactl",
        "bash",
        "sh",
        "uv",
        "exec",
        "nohup",
        "time",
        "sudo",
        "ssh",
        "pdsh",
    }
)
"""Programs whose options do not belong to the launcher before them."""
_BARE: Final = frozenset(
    {
        "--standalone",
        "--no_python",
        "--no-python",
        "--use_env",
        "--use-env",
        "-u",
        "--no_local_rank",
        "--run_path",
        "--run-path",
        "-B",
        "-O",
        "--exclusive",
    }
)
"""Options of launchers without a value."""
_WRITING: Final = frozenset({"echo", "printf", "cat", "tee", "grep", "sed", "awk", "exec_log", "log"})
_MOST_GPUS: Final = 10**7


@dataclass(frozen=True)
class ScriptLaunch:
    """Command that starts a training program, with the number of GPUs from its launchers."""

    words: tuple[Word, ...]
    """Words behind the program's name."""
    gpus: int | None
    """GPUs of the run; None where the script does not determine them."""
    environment: Mapping[str, str]
    """Exported variables whose value is known."""
    before: tuple[Word, ...] = ()
    """Words of the launcher, up to the program's name."""
    remarks: tuple[str, ...] = ()
    """Duties that the script leaves to the user, and its contradictions."""
    gpus_origin: str = ""
    """Options with the number of GPUs, such as `#SBATCH --nodes, --gpus-per-node`; empty without a number."""
    gpus_line: int = 0
    """Line of the first of them."""
    missing_files: tuple[MissingFile, ...] = ()
    """Files that the script sources and that are not at hand."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """Number of GPUs, and the options that state it."""

    gpus: int
    words: str
    line: int


@dataclass(slots=True)
class _Section:
    """Options of one launcher, by name with underscores."""

    name: str
    options: dict[str, Word] = field(default_factory=dict)


def _integer_option(options: Mapping[str, Word], *names: str) -> int | None:
    for name in names:
        if name in options:
            return slurm.number_of(options[name])
    return None


def _split_launchers(words: Sequence[Word]) -> list[_Section]:
    """Returns the launchers among words, the outermost first, with their options."""
    found: list[_Section] = []
    for place, word in enumerate(words):
        base = word.text.rpartition("/")[2]
        if base in _TORCHRUN or base in _MPI or base in slurm.COMMANDS or base in _OTHERS:
            found.append(_Section("torchrun" if base in _TORCHRUN else base))
            if base in slurm.COMMANDS:
                found[-1].options |= slurm.options_of(words[place:])
            continue
        if not found or not word.text.startswith("-") or found[-1].name in slurm.COMMANDS:
            continue
        name, equals, value = word.text.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if equals:
            found[-1].options[name] = Word(value, word.line, word.file, word.unknown, word.defaults)
        elif place + 1 < len(words) and not words[place + 1].text.startswith("-"):
            found[-1].options[name] = words[place + 1]
    return found


@lru_cache(maxsize=1)
def _cached_script(text: str, name: str, files: tuple[tuple[str, str], ...]) -> Script:
    """Returns a script, which several frameworks ask for one after the other."""
    return read_script(text, name, dict(files))


def launch_of(
    text: str, marks: Sequence[str], name: str = "", files: Mapping[str, str] | None = None
) -> ScriptLaunch | None:
    """Returns the command of a script that has most words beginning like one of `marks`, None where none has.

    Commands in quotes behind `bash -c`, here-documents, and variables that hold a command, are looked into.

    Args:
        text: of the script or command line.
        marks: beginnings of words that the framework's commands have.
        name: of the file.
        files: texts of files that the script sources, by their name there.

    Raises `LaunchError` for a script that takes more work, text or depth than launch scripts do.
    """
    if not any(each in text for each in marks):
        return None
    script = _cached_script(text, name, tuple(sorted((files or {}).items())))
    beginnings = tuple(marks)
    best: tuple[tuple[int, bool, bool], Call] | None = None
    equals: list[Call] = []
    for call in script.calls:
        count = sum(word.text.startswith(beginnings) for word in call.words)
        if not count:
            continue
        rank = (count, call.words[0].text.rpartition("/")[2] not in _WRITING, not call.is_held)
        if best is None or rank > best[0]:
            best, equals = (rank, call), []
        elif rank == best[0]:
            equals.append(call)
    if best is None:
        return None
    call = best[1]
    start = _program_end(call.words)
    launchers = [*(word for words in call.wrappers for word in words), *call.words[:start]]
    remarks = list(_script_remarks(script))
    gpus = _count_gpus(launchers, call, script, remarks)
    others = [each for each in equals if _has_different_words(each, call)]
    if others:
        lines = ", ".join(str(each.words[0].line) for each in others[:6])
        remarks.append(
            f"The script has other commands of this kind (line {lines}); the one of line {call.words[0].line} is read."
        )
    return ScriptLaunch(
        tuple(call.words[start:]),
        None if gpus is None else gpus.gpus,
        dict(script.exported),
        tuple(call.words[:start]),
        tuple(comment_text(each) for each in remarks),
        "" if gpus is None else gpus.words,
        0 if gpus is None else gpus.line,
        tuple(script.missing_files),
    )


def _has_different_words(one: Call, other: Call) -> bool:
    return [(each.text, each.unknown) for each in one.words] != [(each.text, each.unknown) for each in other.words]


def _script_remarks(script: Script) -> list[str]:
    found = [str(each) for each in script.missing_files[:20]]
    if script.not_understood:
        found.append(
            f"Line {script.not_understood[0]} of the script is not understood as shell syntax; words there "
            "are read one by one."
        )
    if script.outside:
        named = ", ".join([*script.outside][:8])
        found.append(f"Conditions of the script ask for {named}, which nothing there sets; they count as empty.")
    if script.argument_conditions:
        named = "; ".join([*script.argument_conditions][:4])
        found.append(f"The script's arguments decide conditions ({named}); values are those without any argument.")
    if script.open_conditions:
        named = "; ".join([*script.open_conditions][:4])
        found.append(
            f"Whether conditions hold is open ({named}); all of their branches are read, the last one counting."
        )
    return found


def _count_gpus(launchers: Sequence[Word], call: Call, script: Script, remarks: list[str]) -> _Statement | None:
    """Return the number of GPUs from launchers and allocation."""
    sections = _split_launchers(launchers)
    slurm_options: dict[str, Word] = {}
    is_step = any(each.name in slurm.COMMANDS for each in sections)
    if not is_step:
        # A program that srun starts within a script of its own is not found by words; its allocation is.
        for other in script.calls:
            if other.words and other.words[0].text.rpartition("/")[2] in slurm.COMMANDS:
                slurm_options = {**slurm.options_of(other.words), **slurm_options}
    of_lines = set(call.directives) - set(slurm_options)
    slurm_options = {**call.directives, **slurm_options}
    for section in sections:
        if section.name in slurm.COMMANDS:
            slurm_options |= section.options
            of_lines -= set(section.options)
    allocated = _allocated_gpus(slurm_options, of_lines)
    tasks = _slurm_tasks(slurm_options, of_lines)
    started = _started_processes(sections, slurm_options, of_lines)
    if started is not None:
        _remark_contradiction(started, allocated, remarks)
        return started
    if any(section.name in ("torchrun", "deepspeed") for section in sections):
        return allocated
    if any(section.name in _MPI for section in sections):
        for section in sections:
            count = _integer_option(section.options, "np", "n", "c", "N")
            if section.name in _MPI and count is not None:
                option = next(each for each in ("np", "n", "c", "N") if each in section.options)
                return _Statement(count, f"{section.name} -{option}", section.options[option].line)
        return allocated
    if allocated is not None:
        _remark_contradiction(allocated, tasks, remarks)
        return allocated
    return tasks


def _remark_contradiction(one: _Statement, other: _Statement | None, remarks: list[str]) -> None:
    if other is not None and one.gpus != other.gpus:
        remarks.append(
            f"{one.words} (line {one.line}) gives {one.gpus:,} GPUs, {other.words} (line {other.line}) "
            f"{other.gpus:,}; {one.gpus:,} are taken."
        )


def _format_options(options: Mapping[str, Word], of_lines: set[str], *names: str) -> str:
    """Return options as users write them, options of `#SBATCH` lines first."""
    lines = [f"--{each.replace('_', '-')}" for each in names if each in of_lines]
    words = [f"--{each.replace('_', '-')}" for each in names if each in options and each not in of_lines]
    found = [("#SBATCH ", lines), ("srun ", words)]
    return ", ".join(program + ", ".join(each) for program, each in found if each)


def _first_line(options: Mapping[str, Word], *names: str) -> int:
    return min((options[each].line for each in names if each in options), default=0)


def _count_nodes(options: Mapping[str, Word]) -> int | None:
    """Return the number of nodes of an allocation; 1 if not stated, None if open."""
    if "nodes" not in options:
        return 1
    return _integer_option(options, "nodes")


def _allocated_gpus(options: Mapping[str, Word], of_lines: set[str]) -> _Statement | None:
    """Returns the GPUs that Slurm allocates."""
    nodes = _count_nodes(options)
    of_node = slurm.gpus_of_node(options)
    total = _integer_option(options, "gpus")
    if total is not None and of_node is None:
        return _Statement(total, _format_options(options, of_lines, "gpus"), _first_line(options, "gpus"))
    each = slurm.number_of(of_node[1]) if of_node is not None else None
    if of_node is not None and each is not None and nodes is not None:
        names = ("nodes", of_node[0].lstrip("-").replace("-", "_"))
        return _Statement(nodes * each, _format_options(options, of_lines, *names), _first_line(options, *names))
    of_task, tasks = _integer_option(options, "gpus_per_task"), _slurm_tasks(options, of_lines)
    if of_task is not None and tasks is not None:
        words = f"{tasks.words}, --gpus-per-task"
        return _Statement(tasks.gpus * of_task, words, min(tasks.line, options["gpus_per_task"].line))
    return None


def _slurm_tasks(options: Mapping[str, Word], of_lines: set[str]) -> _Statement | None:
    """Returns the processes that Slurm starts, one GPU each."""
    total = _integer_option(options, "ntasks")
    if total is not None:
        return _Statement(total, _format_options(options, of_lines, "ntasks"), options["ntasks"].line)
    each, nodes = _integer_option(options, "ntasks_per_node", "tasks_per_node"), _count_nodes(options)
    if each is None or nodes is None:
        return None
    names = ("nodes", "ntasks_per_node", "tasks_per_node")
    return _Statement(each * nodes, _format_options(options, of_lines, *names), _first_line(options, *names))


def _started_processes(
    sections: Sequence[_Section], slurm_options: Mapping[str, Word], of_lines: set[str]
) -> _Statement | None:
    """Returns the processes that torchrun, deepspeed or accelerate start on all nodes."""
    found = None
    for section in sections:
        options = section.options
        if section.name == "torchrun":
            each_name, nodes_names = _first_option(options, "nproc_per_node"), ("nnodes",)
        elif section.name == "deepspeed":
            each_name, nodes_names = _first_option(options, "num_gpus"), ("num_nodes",)
        elif section.name == "accelerate" and "num_processes" in options:
            count = _integer_option(options, "num_processes")
            if count is not None:
                found = _Statement(count, "accelerate --num_processes", options["num_processes"].line)
            continue
        else:
            continue
        nodes_name = _first_option(options, *nodes_names)
        each = _integer_option(options, each_name) if each_name else None
        if each_name and each is None and options[each_name].text in ("gpu", "auto"):
            of_node = slurm.gpus_of_node(slurm_options)
            each = slurm.number_of(of_node[1]) if of_node is not None else None
        words = [f"{section.name} --{each_name}"] if each_name else []
        if nodes_name is not None:
            nodes = _parse_node_range(options[nodes_name])
            words.append(f"--{nodes_name}")
        elif "nodes" in slurm_options:
            nodes = _integer_option(slurm_options, "nodes")
            words.append(_format_options(slurm_options, of_lines, "nodes"))
        else:
            nodes = 1
        if each is not None and nodes is not None and each_name is not None and each * nodes < _MOST_GPUS:
            found = _Statement(each * nodes, ", ".join(words), options[each_name].line)
    return found


def _first_option(options: Mapping[str, Word], *names: str) -> str | None:
    return next((each for each in names if each in options), None)


def _parse_node_range(word: Word) -> int | None:
    """Returns a number of nodes; of a range such as 1:4 only one that has one number has a value."""
    least, colon, most = word.text.partition(":")
    return slurm.number_of(word) if not colon or least == most else None


def _program_end(words: Sequence[Word]) -> int:
    """Returns the place behind the program's name: a file of Python, a module behind `-m`, a script; 0 without one."""
    for place, word in enumerate(words):
        if word.text.endswith(".py"):
            return place + 1
        if word.text == "-m" and place + 1 < len(words) and not words[place + 1].text.startswith("torch.distributed"):
            return place + 2
    if words and words[0].text.endswith(".sh"):
        return 1
    if not words or words[0].text.startswith("-"):
        return 0
    # The program's name has no value, such as $SCRIPT: it is the first word that is no option of the launcher.
    place = 0
    while place < len(words):
        word = words[place]
        if word.unknown and not word.text and (place == 0 or _takes_none(words[place - 1].text)):
            return place + 1
        place += 1
    return 0


def _takes_none(text: str) -> bool:
    return not text.startswith("-") or "=" in text or text in _BARE


def comment_text(text: str) -> str:
    """Returns a text as a comment may hold it: on one line, without what a terminal or shell would act on.

    Args:
        text: of anybody, such as the title of a model.
    """
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def torchrun_command(order: LaunchOrder) -> str:
    """Return the beginning of a command that starts a program on every GPU of every node.

    Args:
        order: execution and model to write.
    """
    nodes = f"--nproc_per_node {order.gpus_per_node} --nnodes {order.nodes}"
    return (
        f'torchrun {nodes} --node_rank "${{NODE_RANK:-0}}" --master_addr "${{MASTER_ADDR:-localhost}}" '
        '--master_port "${MASTER_PORT:-29500}"'
    )


EVERY_NODE: Final = "Start it on every node, with NODE_RANK from 0 and MASTER_ADDR set to the first one."


def script_header(title: str, order: LaunchOrder, lists: Mapping[str, Sequence[str]], start: str = EVERY_NODE) -> str:
    """Return the comment at the top of a script: contents of the run, and remarks.

    Args:
        title: name and version of the framework.
        order: execution and model to write.
        lists: sentences by heading; empty ones are left out.
        start: how to start on several nodes.
    """
    network = comment_text(order.model.title or order.model.name)
    gpus = order.nodes * order.gpus_per_node
    nodes = f"{order.nodes} nodes of {order.gpus_per_node}" if order.nodes > 1 else "one node"
    lines = [f"{title}: {network} on {gpus} GPUs, {nodes}."]
    if order.nodes > 1:
        lines.append(start)
    if order.note:
        lines.append(comment_text(order.note))
    for heading, sentences in lists.items():
        if sentences:
            lines += ["", f"{heading}:", *(f"- {comment_text(each)}" for each in sentences)]
    return "\n".join(f"# {line}".rstrip() for line in lines)
