"""Options of Slurm: `#SBATCH` lines, options of `srun` and `sbatch`, and the variables that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from engine.launch.shell.values import Value, Word

__all__ = ["COMMANDS", "gpus_of_node", "number_of", "options_of", "read_directives", "slurm_variables"]

COMMANDS: Final = frozenset({"srun", "sbatch", "salloc"})
_SHORT: Final = {
    "N": "nodes",
    "n": "ntasks",
    "G": "gpus",
    "c": "cpus_per_task",
    "J": "job_name",
    "p": "partition",
    "t": "time",
    "A": "account",
    "o": "output",
    "e": "error",
    "w": "nodelist",
    "x": "exclude",
    "C": "constraint",
    "m": "distribution",
    "D": "chdir",
    "d": "dependency",
    "q": "qos",
}
_READ: Final = frozenset(
    {
        "nodes",
        "ntasks",
        "ntasks_per_node",
        "gpus",
        "gpus_per_node",
        "gpus_per_task",
        "gres",
        "cpus_per_task",
        "tasks_per_node",
        "gpus_on_node",
    }
)
_LINE: Final = re.compile(r"^#SBATCH[ \t]+([^\n]{1,2000})", re.MULTILINE)
_GRES: Final = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::[A-Za-z0-9_.-]*[A-Za-z][A-Za-z0-9_.-]*)?(?:[:=](\d{1,6}))?(?:\(.*\))?(?=,|$)"
)
_LARGEST: Final = 10**7


def read_directives(text: str, file: str, value: Value = ()) -> dict[str, Word]:
    """Returns the options of a script's `#SBATCH` lines, by name with underscores.

    Args:
        text: of the script.
        file: its name.
        value: the text with its lines, where it comes from within a script.
    """
    found: dict[str, Word] = {}
    line, seen = 1, 0
    for match in _LINE.finditer(text):
        line += text.count("\n", seen, match.start())
        seen = match.start()
        words = []
        for word in match[1].split():
            if word.startswith("#"):
                break
            words.append(Word(word, _line_of(value, match.start()) if value else line, file))
        found |= _parse_options(words)
    return found


def _line_of(value: Value, place: int) -> int:
    for segment in value:
        if place < len(segment.text):
            return segment.line
        place -= len(segment.text)
    return value[-1].line


def options_of(words: Sequence[Word]) -> dict[str, Word]:
    """Returns the options of a command of Slurm up to the program that it starts; empty for other commands.

    Args:
        words: of the command.
    """
    for place, word in enumerate(words):
        if word.text.rpartition("/")[2] in COMMANDS:
            return _parse_options(words[place + 1 :])
    return {}


def _parse_options(words: Sequence[Word]) -> dict[str, Word]:
    found: dict[str, Word] = {}
    place = 0
    while place < len(words):
        word = words[place]
        text = word.text
        place += 1
        if text.startswith("--"):
            name, equals, value = text[2:].partition("=")
            name = name.replace("-", "_")
            if equals:
                found[name] = Word(value, word.line, word.file, word.unknown, word.defaults)
            elif (
                place < len(words)
                and not words[place].text.startswith("-")
                and (name in _READ or name in _SHORT.values() or name in _WITH_VALUES)
            ):
                found[name] = words[place]
                place += 1
        elif text.startswith("-") and len(text) > 1:
            name = _SHORT.get(text[1], text[1])
            if len(text) > 2 or (not text[2:] and word.unknown):
                found[name] = Word(text[2:].removeprefix("="), word.line, word.file, word.unknown, word.defaults)
            elif place < len(words) and text[1] not in "lukQvXIEHhsOV":
                found[name] = words[place]
                place += 1
        elif not word.unknown or text:
            break  # the program
    return {name: word for name, word in found.items() if name in _READ}


_WITH_VALUES: Final = frozenset(
    {
        "mpi",
        "cpu_bind",
        "mem",
        "time",
        "container_image",
        "container_mounts",
        "container_name",
        "container_workdir",
        "jobid",
        "export",
        "label",
        "comment",
        "gpu_bind",
        "mem_per_cpu",
        "mem_per_gpu",
        "relative",
        "ntasks_per_socket",
        "cpus_per_gpu",
        "kill_on_bad_exit",
        "threads_per_core",
        "hint",
        "distribution",
        "reservation",
        "mail_type",
        "wrap",
        "mail_user",
        "signal",
        "network",
        "switches",
        "array",
        "input",
        "ntasks_per_gpu",
        "exclude",
        "nodelist",
        "uid",
    }
) - {"label"}


def number_of(word: Word | None) -> int | None:
    """Returns the number that an option gives, None where it gives none."""
    if word is None or word.unknown:
        return None
    text = word.text.rpartition(":")[2]
    return int(text) if re.fullmatch(r"\d{1,8}", text) and 0 < int(text) < _LARGEST else None


def gpus_of_node(options: Mapping[str, Word]) -> tuple[str, Word] | None:
    """Return the option with the number of GPUs of a node, and its value; None without one."""
    if number_of(options.get("gpus_per_node")) is not None:
        return "--gpus-per-node", options["gpus_per_node"]
    gres = options.get("gres")
    if gres is not None and not gres.unknown and (found := _GRES.search(gres.text)) is not None:
        return "--gres", Word(found[1] or "1", gres.line, gres.file)
    return None


def slurm_variables(options: Mapping[str, Word]) -> dict[str, Word]:
    """Returns the variables that Slurm sets for options.

    Args:
        options: by name with underscores.
    """
    found: dict[str, Word] = {}

    def give(word: Word | None, *names: str) -> None:
        if word is not None and not word.unknown and word.text:
            found.update(dict.fromkeys(names, word))

    nodes, each = options.get("nodes"), options.get("ntasks_per_node") or options.get("tasks_per_node")
    tasks = options.get("ntasks")
    if number_of(nodes) is not None and nodes is not None and "-" not in nodes.text:
        give(nodes, "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    give(each, "SLURM_NTASKS_PER_NODE")
    if tasks is None and number_of(each) is not None and each is not None:
        count = number_of(nodes) if nodes is not None else 1
        number = number_of(each)
        if count is not None and number is not None:
            tasks = Word(str(count * number), each.line, each.file)
    give(tasks, "SLURM_NTASKS", "SLURM_NPROCS")
    give(options.get("cpus_per_task"), "SLURM_CPUS_PER_TASK")
    give(options.get("gpus_per_node"), "SLURM_GPUS_PER_NODE")
    give(options.get("gpus"), "SLURM_GPUS")
    give(options.get("gpus_per_task"), "SLURM_GPUS_PER_TASK")
    of_node = gpus_of_node(options)
    if of_node is not None:
        number = number_of(of_node[1])
        give(None if number is None else Word(str(number), of_node[1].line, of_node[1].file), "SLURM_GPUS_ON_NODE")
    return found
