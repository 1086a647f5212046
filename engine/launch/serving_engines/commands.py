"""Commands of shell scripts that start a server of a serving engine, as its flags."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from engine.launch.contract import LaunchError, UnknownValue
from engine.launch.launchers import comment_text
from engine.launch.serving_engines.arguments import ArgumentSnapshot, snapshot_of
from engine.launch.serving_engines.registry import ENGINES
from engine.launch.serving_engines.variables import export_lines, fill_in_texts
from engine.launch.shell import Call, Script, Word, read_script
from engine.launch.yaml_files import read_yaml

__all__ = ["MARKS", "FoundServer", "find_servers", "has_server"]

MARKS: Final = ("vllm", "sglang", "trtllm-serve", "dynamo.")
"""Words without which a text starts no server."""
_MODULES: Final[Mapping[str, tuple[str, str]]] = {
    "vllm.entrypoints.openai.api_server": ("vllm", "vllm serve"),
    "vllm.entrypoints.cli.main": ("vllm", "vllm serve"),
    "sglang.launch_server": ("sglang", "sglang"),
    "dynamo.vllm": ("vllm", "dynamo.vllm"),
    "dynamo.sglang": ("sglang", "dynamo.sglang"),
    "dynamo.trtllm": ("trtllm", "dynamo.trtllm"),
}
"""Engine and command by module behind `python -m`."""
_IMAGE: Final = re.compile(r"(^|/)vllm-openai(-[a-z]+)?([:@]|\Z)")
"""Image whose entry point is the server itself."""
_NODE_FLAGS: Final = frozenset(
    {
        "headless",
        "node-rank",
        "data-parallel-start-rank",
        "data-parallel-rank",
        "data-parallel-address",
        "data-parallel-size-local",
        "api-server-count",
        "master-addr",
        "dist-init-addr",
    }
)
"""Flags in which the commands of one instance's nodes differ."""
_PLACE_FLAGS: Final = frozenset(
    {"port", "host", "grpc-port", "nccl-port", "base-gpu-id", "disaggregation-bootstrap-port"}
)
"""Flags in which copies of a server on one machine differ."""
_FILE_FLAGS: Final = ("config", "extra-engine-args", "extra_llm_api_options")
_HERE: Final = re.compile(r"<<-?\s*(['\"]?)(\w{1,80})\1")
_TARGET: Final = re.compile(r"(>>?|\btee\b(?:\s+-a)?)\s*([^\s<>|;&]{1,400})")
_EXPRESSION: Final = re.compile(
    r"\$\(\([^\n]{0,300}?\)\)|\$\([^()\n]{0,300}\)|\$\{[^{}\n]{1,300}\}|\$[A-Za-z_]\w{0,80}"
)
"""Parts of a text between `<<EOF` and `EOF` that a shell replaces."""
_NAME: Final = re.compile(r"[A-Za-z_]\w{0,80}")
_ROLES: Final = ("prefill", "decode")


@dataclass(frozen=True)
class FoundServer:
    """Command that starts a server, with copies of it."""

    engine: str
    command: str
    flags: Mapping[str, Any]
    """Values by flag as written; `model` for the word without a flag."""
    line: int = 0
    file: str = ""
    """Path of the engine's own YAML; empty without one."""
    yaml: Mapping[str, Any] = field(default_factory=dict)
    copies: int = 1
    role: str = ""
    remarks: tuple[str, ...] = ()


def has_server(text: str) -> bool:
    """Return whether a text may start a server of an engine."""
    return any(mark in text for mark in MARKS)


def find_servers(
    text: str, name: str, environment: Mapping[str, str], files: Mapping[str, str] | None = None
) -> list[FoundServer]:
    """Return the servers that a script starts; commands that differ only by node or port are one.

    Args:
        text: of the script or command line.
        name: of the file.
        environment: values of variables by name, set before the script.
        files: texts of files that the server reads, by path or name, besides files that the script writes.

    Raises `LaunchError` for a script that takes more work than launch scripts do.
    """
    if not has_server(text):
        return []
    lines = export_lines(environment)
    script = read_script(lines + text, name)
    offset = lines.count("\n")
    files = {**(files or {}), **_here_documents(text, script, offset)}
    found = [server for call in script.calls if (server := _server_of(call, offset)) is not None]
    return _merge_copies([_attach_file(server, files, name) for server in found])


def _server_of(call: Call, offset: int) -> FoundServer | None:
    words = call.words
    for place, word in enumerate(words):
        base = word.text.rpartition("/")[2]
        after = words[place + 1].text if place + 1 < len(words) else ""
        if base in ("vllm", "sglang") and after == "serve":
            return _parse_server(base, f"{base} serve" if base == "vllm" else base, words[place + 2 :], word, offset)
        if word.text == "-m" and after in _MODULES:
            engine, command = _MODULES[after]
            start = place + 2
            if start < len(words) and words[start].text == "serve":
                start += 1
            return _parse_server(engine, command, words[start:], word, offset)
        if base == "trtllm-serve":
            start = place + 1
            if after in ("serve", "disaggregated", "mm_embedding_serve", "disaggregated_mpi_worker"):
                start += 1
            command = "disaggregated" if after.startswith("disaggregated") else "trtllm-serve"
            return _parse_server("trtllm", command, words[start:], word, offset)
        if _IMAGE.search(word.text) and after.startswith("-"):
            return _parse_server("vllm", "vllm serve", words[place + 1 :], word, offset)
    return None


def _parse_server(engine: str, command: str, words: Sequence[Word], at: Word, offset: int) -> FoundServer:
    snapshot = snapshot_of(f"dynamo_{engine}" if command.startswith("dynamo") else ENGINES[engine].snapshot)
    flags: dict[str, Any] = {}
    remarks: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.text and not word.unknown:
            continue
        if not word.text.startswith("-") or len(word.text) < 2:
            if word.unknown and not word.text and (flags or engine == "sglang" or command != "vllm serve"):
                expression = " ".join(word.unknown)[:160]
                flags[expression] = UnknownValue(expression, max(word.line - offset, 0), word.file)
            elif "model" not in flags and engine != "sglang" and not flags:
                flags["model"] = _value_of(word, word.text, offset)
            else:
                remarks.append(f"{comment_text(word.text)[:80]} stands behind no flag and is not read.")
            continue
        name, equals, text = word.text.partition("=")
        if equals:
            flags[name] = _value_of(word, text, offset)
            continue
        takes = _kind_of(snapshot, name)
        values = []
        while place < len(words) and not _is_flag(words[place].text) and takes != "flag":
            values.append(_value_of(words[place], words[place].text, offset))
            place += 1
            if takes != "words":
                break
        flags[name] = True if not values else values if takes == "words" and len(values) > 1 else values[0]
    # --config and --extra_llm_api_options are one option of trtllm-serve: the later one counts.
    config = next((flags[key] for key in reversed(flags) if _is_file_flag(key)), "")
    return FoundServer(
        engine,
        command,
        flags,
        max(at.line - offset, 0),
        config if isinstance(config, str) else "",
        remarks=tuple(remarks[:20]),
    )


def _is_file_flag(key: str) -> bool:
    return key.lstrip("-") in _FILE_FLAGS


def _is_flag(text: str) -> bool:
    return re.match(r"--?[A-Za-z]", text) is not None


def _kind_of(snapshot: ArgumentSnapshot, name: str) -> str:
    key = name.lstrip("-").partition(".")[0]
    for spelled in (key, key.replace("_", "-"), key.replace("-", "_")):
        full = snapshot.resolve(spelled)
        if full is not None:
            return snapshot.kinds[full] if "." not in name else "word"
        if spelled.startswith(("no-", "no_")):
            return "flag"
    return "word"


def _value_of(word: Word, text: str, offset: int) -> Any:
    if not word.unknown:
        return text
    return UnknownValue(" ".join(word.unknown)[:160], max(word.line - offset, 0), word.file)


def _here_documents(text: str, script: Script, offset: int) -> dict[str, str]:
    """Return files that the script writes with `cat > NAME <<EOF`, by their path, with known variables put in.

    Of branches the one that the script takes counts.
    """
    found: dict[str, str] = {}
    lines = text.split("\n") if "<<" in text else []
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(number)
    run = {word.line - offset for call in script.calls for word in call.words[:1] if word.text in ("cat", "tee")}
    for number, line in enumerate(lines):
        start = _HERE.search(line[:2_000])
        target = None if start is None else _TARGET.search(line[:2_000].replace(start[0], " "))
        if start is None or target is None or number + 1 not in run:
            continue
        ends = places.get(start[2], [])
        index = bisect_right(ends, number)
        if index == len(ends):
            continue
        body = "\n".join(lines[number + 1 : ends[index]]) + "\n"
        if not start[1]:
            body = _put_variables(body, script)
        path = _put_variables(target[2].strip("'\""), script)
        found[path] = found.get(path, "") + body if target[1].endswith((">>", "-a")) else body
    return found


def _put_variables(text: str, script: Script) -> str:
    """Return a text with the variables and arithmetic whose value the script determines.

    Other expressions become their bare name: braces and commas of `${LIST%, }` would be YAML of their own.
    """
    expressions = list(dict.fromkeys(_EXPRESSION.findall(text)))
    values = dict(zip(expressions, fill_in_texts(expressions, script.variables), strict=True))

    def replacement(match: re.Match[str]) -> str:
        value, name = values[match[0]], _NAME.search(match[0])
        return value if isinstance(value, str) else f"${name[0] if name else 'OUTSIDE'}"

    return _EXPRESSION.sub(replacement, text)


def _attach_file(server: FoundServer, files: Mapping[str, str], name: str) -> FoundServer:
    """Return a server with the contents of its YAML, where the script writes it."""
    if not server.file:
        return server
    wanted = server.file.rpartition("/")[2]
    text = next(
        (body for path, body in files.items() if path == server.file or path.rpartition("/")[2] == wanted), None
    )
    if text is None:
        told = f"{comment_text(server.file)[:80]} is not at hand: what it sets is open."
        return replace(server, remarks=(*server.remarks, told))
    return replace(server, yaml=read_yaml(text, f"{name}, {wanted}").values)


def _merge_copies(servers: Sequence[FoundServer]) -> list[FoundServer]:
    """Return the servers, several nodes of one as one server, copies on other ports counted."""
    found: list[FoundServer] = []
    seen: list[tuple[Any, set[str], set[str]]] = []
    for server in servers:
        server = replace(server, role=server.role or _role_of(server))
        plain = {key.lstrip("-").replace("_", "-"): value for key, value in server.flags.items()}
        key = (
            server.engine,
            server.role,
            repr({name: value for name, value in plain.items() if name not in _NODE_FLAGS | _PLACE_FLAGS}),
            repr(server.yaml),
        )
        places = repr([plain.get(name) for name in sorted(_PLACE_FLAGS)])
        nodes = repr([plain.get(name) for name in sorted(_NODE_FLAGS)])
        index = next((number for number, each in enumerate(seen) if each[0] == key), None)
        if index is None:
            seen.append((key, {places}, {nodes}))
            found.append(server)
            continue
        _, known_places, known_nodes = seen[index]
        if places not in known_places and nodes in known_nodes:
            found[index] = replace(found[index], copies=found[index].copies + 1)
        known_places.add(places)
        known_nodes.add(nodes)
    return found


def _role_of(server: FoundServer) -> str:
    """Return the role that a server's flags state; empty where they state none."""
    for key, value in server.flags.items():
        name = key.lstrip("-").replace("_", "-")
        if name in ("disaggregation-mode", "server-role") and isinstance(value, str):
            word = {"context": "prefill", "generation": "decode"}.get(value.lower(), value.lower())
            return word if word in _ROLES else ""
        if name in ("is-prefill-worker", "is-decode-worker") and value is True:
            return name.split("-")[1]
        if name == "kv-transfer-config" and isinstance(value, str):
            if "kv_producer" in value:
                return "prefill"
            if "kv_consumer" in value:
                return "decode"
    # A server of TensorRT-LLM does not know its role; the name of its YAML is the best word for it.
    name = server.file.rpartition("/")[2].lower()
    return next((role for role in _ROLES if name.startswith(role)), "")


def check_one_engine(servers: Sequence[FoundServer], name: str) -> None:
    """Raise `LaunchError` where a file starts servers of several engines."""
    engines = sorted({each.engine for each in servers})
    if len(engines) > 1:
        raise LaunchError(f"{name} starts servers of {' and '.join(engines)}; give one of them.")
