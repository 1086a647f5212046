"""Arguments of serving engines read from their released wheels, without importing them: names, kinds and aliases.

    python -m tests.engine.launch.serving_engines.argument_snapshots vllm vllm-0.33.0-....whl

prints the arguments that differ from the snapshot in `engine/launch/serving_engines/snapshots`. Names of earlier
versions (`gone`) are kept by hand, and so are the arguments of TensorRT-LLM, whose wheel has several gigabytes.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from engine.launch.serving_engines.arguments import snapshot_of

_KINDS: Final = {"bool": "flag", "int": "integer", "float": "number"}
_RESOLVED: Final = {
    "max-num-batched-tokens": "integer",
    "max-num-scheduled-tokens": "integer",
    "max-num-seqs": "integer",
    "enable-prefix-caching": "flag",
    "enable-chunked-prefill": "flag",
    "mm-device-do-normalize": "flag",
    "cp-kv-cache-interleave-size": "integer",
    "logging-config": "json",
    "log-config-file": "word",
    "log-level": "word",
    "hf-token": "word",
    "served-model-name": "words",
    "kv-cache-memory-bytes": "integer",
}
"""Kinds of arguments of vLLM that are computed where they are declared."""


def kind_of(annotation: str) -> str:
    """Return the kind of an argument from its annotation."""
    plain = annotation.replace(" | None", "")
    plain = plain.removeprefix("Optional[").removesuffix("]") if plain.startswith("Optional[") else plain
    if plain in _KINDS:
        return _KINDS[plain]
    if re.match(r"(dict|Dict|.*Config\b|HfOverrides|MultiModalDummy)", plain):
        return "json"
    return "words" if re.match(r"(list|List|set|Union\[set|tuple)", plain) else "word"


def trees_of(wheel: Path, pattern: str) -> Iterator[ast.Module]:
    """Yield the modules of a wheel whose names match."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if re.fullmatch(pattern, name):
                yield ast.parse(archive.read(name))


def annotations_of(node: ast.ClassDef) -> dict[str, str]:
    """Return the annotations of a class by field."""
    return {
        each.target.id: ast.unparse(each.annotation)
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def read_vllm(wheel: Path) -> dict[str, str]:
    """Return the arguments of `vllm serve` with their kinds."""
    classes: dict[str, dict[str, str]] = {}
    for tree in trees_of(wheel, r"vllm/(config/\w+|engine/arg_utils|entrypoints/common/cli_args)\.py"):
        classes |= {node.name: annotations_of(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    found: dict[str, str] = {}
    for tree in trees_of(wheel, r"vllm/(engine/arg_utils|entrypoints/common/cli_args)\.py"):
        groups = {
            ast.unparse(node.targets[0]): ast.unparse(node.value.args[0])
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "get_kwargs"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
                names = [each.value for each in node.args if isinstance(each, ast.Constant)]
                names = [name for name in names if str(name).startswith("-")]
                if names:
                    name = str(names[0]).lstrip("-")
                    found[name] = _RESOLVED.get(name) or _vllm_kind(node, groups, classes)
    for group in ("BaseFrontendArgs", "FrontendArgs"):
        for field, annotation in classes[group].items():
            name = field.replace("_", "-")
            found[name] = _RESOLVED.get(name) or kind_of(annotation)
    return found


def _vllm_kind(node: ast.Call, groups: dict[str, str], classes: dict[str, dict[str, str]]) -> str:
    keywords = {each.arg: each.value for each in node.keywords}
    spread = keywords.get(None)
    if isinstance(spread, ast.Subscript):
        fields = classes.get(groups.get(ast.unparse(spread.value), ""), {})
        return kind_of(fields.get(ast.literal_eval(spread.slice), "str"))
    if "action" in keywords:
        return "flag"
    return kind_of(ast.unparse(keywords["type"])) if "type" in keywords else "word"


def read_sglang(wheel: Path) -> dict[str, str]:
    """Return the arguments of `sglang.launch_server` with their kinds: its fields, and deprecated names."""
    found: dict[str, str] = {}
    for tree in trees_of(wheel, r"sglang/srt/arg_groups/fields/\w+\.py"):
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript):
                declared = _sglang_argument(node, node.annotation)
                found |= {} if declared is None else dict([declared])
    for tree in trees_of(wheel, r"sglang/srt/server_args\.py"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
                (name,) = [str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant)]
                action = next((ast.unparse(each.value) for each in node.keywords if each.arg == "action"), "")
                is_flag = "StoreTrue" in action or "store_true" in action
                found[name.lstrip("-")] = "flag" if is_flag else "word"
    return found


def _sglang_argument(node: ast.AnnAssign, annotation: ast.Subscript) -> tuple[str, str] | None:
    if ast.unparse(annotation.value) not in ("A", "Annotated") or not isinstance(annotation.slice, ast.Tuple):
        return None
    kind, *more = annotation.slice.elts
    options: dict[str, Any] = {}
    for each in more:
        if isinstance(each, ast.Call):
            if ast.unparse(each.func) == "Derived":
                return None
            options |= {str(keyword.arg): ast.unparse(keyword.value) for keyword in each.keywords}
    if options.get("no_cli") == "True":
        return None
    name = ast.literal_eval(options["cli_name"]) if "cli_name" in options else ast.unparse(node.target)
    name = name.lstrip("-").replace("_", "-")
    if options.get("nargs", "'?'") != "'?'":
        return name, "words"
    return name, "flag" if "BooleanOptional" in options.get("action", "") else kind_of(ast.unparse(kind))


def main(engine: str, wheel: str) -> int:
    """Print the arguments in which a wheel and the snapshot differ; return how many there are."""
    found = {"vllm": read_vllm, "sglang": read_sglang}[engine](Path(wheel))
    known = snapshot_of(engine).kinds
    differing = [name for name in sorted({*found, *known}) if found.get(name) != known.get(name)]
    for name in differing:
        sys.stdout.write(f"{name}: {known.get(name)} in the snapshot, {found.get(name)} in the wheel\n")
    return len(differing)


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:3]), 1))
