"""What the programs that start processes on many nodes say of their number: torchrun, srun, sbatch, deepspeed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.launch.contract import Order
from engine.launch.shell_words import Script, read_script

__all__ = ["Launch", "header", "launch_of", "plain", "torchrun"]

_NODES: Final = ("nnodes", "nodes", "num_nodes", "N")
_EACH: Final = ("nproc_per_node", "ntasks_per_node", "gpus_per_node", "num_gpus")
_DIRECTIVE: Final = re.compile(r"^#SBATCH\s+--?([A-Za-z-]{1,40})[ =]+([A-Za-z0-9_.:-]{1,60})", re.MULTILINE)


@dataclass(frozen=True)
class Launch:
    """The command that starts a program: its words behind the program's name, GPUs and exported variables."""

    words: tuple[str, ...]
    gpus: int | None
    environment: Mapping[str, str]
    before: tuple[str, ...] = ()
    """Words of the launcher, up to the program's name."""
    remarks: tuple[str, ...] = ()
    """What the script leaves to whoever starts it."""


def _number(words: Mapping[str, str], names: Sequence[str]) -> int | None:
    for name in names:
        value = words.get(name, "").split(":")[-1]
        if value.isdecimal() and 0 < int(value[:12]) < 10**7:
            return int(value[:12])
    return None


def _options(words: Sequence[str]) -> dict[str, str]:
    """Values of options, by name with underscores."""
    found: dict[str, str] = {}
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and place + 1 < len(words) and not words[place + 1].startswith("-"):
            value = words[place + 1]
        found[name.replace("-", "_")] = value
    return found


def launch_of(text: str, marks: Sequence[str]) -> Launch | None:
    """Returns the command of a script that has most words beginning like one of `marks`, None where none has.

    Commands in quotes behind `bash -c`, and variables that hold a command, are looked into.

    Args:
        text: of the script or command line.
        marks: beginnings of words that the framework's commands have.
    """
    script = read_script(text)
    candidates = [*script.commands, *_nested(script)]
    best: tuple[int, list[str]] = (0, [])
    for words in candidates:
        count = sum(word.startswith(tuple(marks)) for word in words)
        if count > best[0]:
            best = (count, words)
    if not best[0]:
        return None
    words = best[1]
    start = _program_end(words)
    options = _options(words[:start])
    for other in script.commands:
        if other and other[0].rpartition("/")[2] in ("srun", "sbatch", "salloc"):
            options = {**_options(other), **options}
    for name, value in _DIRECTIVE.findall(text):
        options.setdefault(name.replace("-", "_"), value)
    each, nodes = _number(options, _EACH), _number(options, _NODES)
    gpus = each * (nodes or 1) if each else None
    return Launch(tuple(words[start:]), gpus, dict(script.exported), tuple(words[:start]), _remarks(script))


def _remarks(script: Script) -> tuple[str, ...]:
    found = []
    if script.outside:
        named = ", ".join([*script.outside][:8])
        found.append(f"Conditions of the script ask for {named}, which nothing there sets; they count as empty.")
    if script.open_conditions:
        named = "; ".join([*script.open_conditions][:4])
        found.append(
            f"Whether conditions hold is open ({named}); all of their branches are read, the last one counting."
        )
    return tuple(plain(each) for each in found)


def _nested(script: Script) -> list[list[str]]:
    found: list[list[str]] = []
    for text in (*script.variables.values(), *(word for words in script.commands for word in words if " " in word)):
        if "--" in text and len(found) < 100:
            found += read_script(text, script.variables).commands
    return found


def _program_end(words: Sequence[str]) -> int:
    """The place behind the program's name: a file of Python, a module behind `-m`, a script; 0 without one."""
    for place, word in enumerate(words):
        if word.endswith(".py"):
            return place + 1
        if word == "-m" and place + 1 < len(words) and not words[place + 1].startswith("torch.distributed"):
            return place + 2
    return 1 if words and words[0].endswith(".sh") else 0


def plain(text: str) -> str:
    """Returns a text as a comment may hold it: on one line, without what a terminal or shell would act on.

    Args:
        text: of anybody, such as the title of a model.
    """
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def torchrun(order: Order) -> str:
    """Returns the beginning of a command that starts a program on every GPU of every node.

    Args:
        order: what is written.
    """
    nodes = f"--nproc_per_node {order.gpus_per_node} --nnodes {order.nodes}"
    return (
        f'torchrun {nodes} --node_rank "${{NODE_RANK:-0}}" --master_addr "${{MASTER_ADDR:-localhost}}" '
        '--master_port "${MASTER_PORT:-29500}"'
    )


EVERY_NODE: Final = "Start it on every node, with NODE_RANK from 0 and MASTER_ADDR set to the first one."


def header(title: str, order: Order, lists: Mapping[str, Sequence[str]], start: str = EVERY_NODE) -> str:
    """Returns the comment at the top of a script: what it runs, and what is to be known of it.

    Args:
        title: of the framework, with its version.
        order: what is written.
        lists: sentences by heading; those without any are left out.
        start: how it is started on several nodes.
    """
    network = plain(order.model.title or order.model.name)
    gpus = order.nodes * order.gpus_per_node
    nodes = f"{order.nodes} nodes of {order.gpus_per_node}" if order.nodes > 1 else "one node"
    lines = [f"{title}: {network} on {gpus} GPUs, {nodes}."]
    if order.nodes > 1:
        lines.append(start)
    if order.note:
        lines.append(plain(order.note))
    for heading, sentences in lists.items():
        if sentences:
            lines += ["", f"{heading}:", *(f"- {plain(each)}" for each in sentences)]
    return "\n".join(f"# {line}".rstrip() for line in lines)
