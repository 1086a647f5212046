"""Texts of launch configurations of serving engines: scripts, manifests and engines' own YAML, as deployments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.serving_engines.arguments import snapshot_of
from engine.launch.serving_engines.commands import FoundServer, check_one_engine, find_servers
from engine.launch.serving_engines.contract import EngineReading
from engine.launch.serving_engines.manifests_reading import ManifestPools, find_pools, is_manifest
from engine.launch.serving_engines.model_names import suggested_bits
from engine.launch.serving_engines.reading import read_engine
from engine.launch.serving_engines.registry import ENGINES, engine_of
from engine.launch.serving_engines.variables import check_environment
from engine.launch.yaml_files import read_yaml_documents
from models.documents import check_numbers, shown

__all__ = ["MOST_BYTES", "is_serving_text", "read_engine_text"]

MOST_BYTES: Final = 2_000_000
_YAML: Final = (".yaml", ".yml")
_LOOKS_LIKE_YAML: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*|---[^\n]*)?\n)*[A-Za-z_][\w.-]{0,60}:(?:[ \t][^\n]*)?\n")
_TEMPLATE: Final = re.compile(r"^[^#\n]*\{\{[^\n]*\}\}", re.MULTILINE)
_SERVING_KINDS: Final = re.compile(
    r"^\s*kind:\s*[\"']?(DynamoGraphDeployment|LeaderWorkerSet|DisaggregatedSet|Deployment|StatefulSet|Pod|List)\b",
    re.MULTILINE,
)
_ENGINE_KEYS: Final = re.compile(
    r"^(context_servers|generation_servers|kv_cache_config|enable_attention_dp|cuda_graph_config|free_gpu_memory_fraction"
    r"|max_num_tokens|[ \t]+(?:vllm|sglang|trtllm)_config|modelArtifacts)\s*:",
    re.MULTILINE,
)


def _is_yaml(text: str, name: str) -> bool:
    if name.lower().endswith(_YAML):
        return True
    return "." not in name.rpartition("/")[2] and _LOOKS_LIKE_YAML.match(text[:4_000]) is not None


def is_serving_text(text: str, name: str) -> bool:
    """Return whether a text looks like a configuration of a serving engine rather than of a training framework.

    Args:
        text: of the file.
        name: of the file; its ending counts.
    """
    if _is_yaml(text, name):
        if _SERVING_KINDS.search(text) and re.search(r"^\s*apiVersion:", text, re.MULTILINE):
            return True
        return _ENGINE_KEYS.search(text) is not None
    return (
        re.search(
            r"\b(vllm\s+serve|sglang\s+serve|trtllm-serve|sglang\.launch_server|vllm\.entrypoints\.|dynamo\.(vllm|sglang|trtllm)"
            r"|vllm-openai)\b",
            text,
        )
        is not None
    )


def read_engine_text(
    content: bytes | str,
    name: str,
    *,
    engine: str | None = None,
    gpus: int | None = None,
    environment: Mapping[str, Any] | None = None,
) -> EngineReading:
    """Return the deployment that the text of a serving engine's launch configuration describes.

    Read are shell scripts and command lines, Deployments, LeaderWorkerSets and DisaggregatedSets of Kubernetes,
    DynamoGraphDeployments, values and patches of llm-d, srt-slurm recipes, and engines' own YAML.

    Args:
        content: text of the file.
        name: file name; its ending gives the format.
        engine: engine of a YAML file of flags; detected if None.
        gpus: number of GPUs of a script, from which copies of its server follow.
        environment: values of variables that the text takes from outside.

    Raises `LaunchError` for content that is not text, is too long, cannot be read, or starts no server.
    """
    shown_name = shown(name)[1:-1]
    if isinstance(content, bytes):
        try:
            content = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise LaunchError(f"{shown_name} is no text; a launch configuration is text in UTF-8.") from None
    if len(content) > MOST_BYTES or "\0" in content:
        raise LaunchError(f"{shown_name} is no launch configuration: too long, or not text.")
    check_numbers(content, shown_name, LaunchError)
    content = content.replace("\r\n", "\n").replace("\r", "\n")
    variables = check_environment(environment)
    if engine is not None:
        engine_of(engine)
    if _is_yaml(content, name):
        return _read_yaml_text(content, name, engine, gpus, variables)
    servers = [each for each in find_servers(content, name, variables) if engine is None or each.engine == engine]
    if not servers:
        raise LaunchError(
            f"{shown_name} starts no server that is known here; read are vllm serve, sglang.launch_server, "
            "trtllm-serve and Dynamo's workers."
        )
    check_one_engine(servers, shown_name)
    return _read_servers(servers, gpus, variables)


def _read_servers(servers: list[FoundServer], gpus: int | None, variables: Mapping[str, str]) -> EngineReading:
    first = servers[0]
    roles = [each.role for each in servers]
    remarks = [sentence for each in servers for sentence in each.remarks]
    if "prefill" in roles and "decode" in roles:
        pools = [_pool_of(each) for each in servers if each.role]
        found = read_engine(first.engine, pools=pools, gpus=gpus, environment=variables)
    else:
        if len(servers) > 1:
            lines = ", ".join(str(each.line) for each in servers[1:7])
            remarks.append(f"The script starts other servers (line {lines}); the one of line {first.line} is read.")
        if gpus is None and not first.role and first.copies == 1 and not first.command.startswith("dynamo"):
            found = read_engine(first.engine, flags=first.flags, yaml=first.yaml, environment=variables)
        elif gpus is not None and not first.command.startswith("dynamo"):
            found = read_engine(first.engine, flags=first.flags, yaml=first.yaml, gpus=gpus, environment=variables)
        else:
            pool = {**_pool_of(first), "role": "agg"}
            found = read_engine(first.engine, pools=[pool], gpus=gpus, environment=variables)
    return replace(found, form="command", remarks=list(dict.fromkeys([*remarks, *found.remarks])))


def _pool_of(server: FoundServer) -> dict[str, Any]:
    return {
        "role": server.role or "agg",
        "replicas": server.copies,
        "command": server.command,
        "flags": server.flags,
        "yaml": server.yaml,
    }


def _read_yaml_text(
    text: str, name: str, engine: str | None, gpus: int | None, variables: Mapping[str, str]
) -> EngineReading:
    shown_name = shown(name)[1:-1]
    if _TEMPLATE.search(text):
        raise LaunchError(f"{shown_name} is a template ({{{{ }}}}); render it first, for example with helm template.")
    documents = read_yaml_documents(text, name)
    if any(is_manifest(document) for document in documents):
        found = find_pools(documents, name, variables)
        if found is None:
            raise LaunchError(f"{shown_name} starts no server of {', '.join(each.title for each in ENGINES.values())}.")
        return _read_pools(found, gpus, variables)
    if not documents:
        raise LaunchError(f"{shown_name} has no table; a launch configuration has keys and values.")
    values = documents[0]
    chosen = engine or _engine_of_keys(values)
    if chosen is None:
        raise LaunchError(
            f"{shown_name} is no launch configuration of a serving engine that is known here; name its engine if its "
            "keys are flags."
        )
    chosen = engine_of(chosen).name
    parts: dict[str, Any] = {"yaml": values} if chosen == "trtllm" else {"flags": values}
    found_reading = read_engine(chosen, **parts, gpus=gpus, environment=variables)
    return replace(found_reading, form="engine's own YAML")


def _engine_of_keys(values: Mapping[str, Any]) -> str | None:
    """Return the engine whose own YAML has most of the keys, at least two thirds of them; None without one."""
    best, most = None, 0.0
    for engine, snapshot in (("trtllm", "trtllm_yaml"), ("vllm", "vllm"), ("sglang", "sglang")):
        known = snapshot_of(snapshot)
        names = [str(key) for key in values]
        count = sum(known.resolve(name if engine == "trtllm" else name.replace("_", "-")) is not None for name in names)
        if names and count / len(names) > max(most, 0.66):
            best, most = engine, count / len(names)
    return best


def _read_pools(found: ManifestPools, gpus: int | None, variables: Mapping[str, str]) -> EngineReading:
    roles = {str(pool["role"]) for pool in found.pools}
    pools = list(found.pools)
    remarks = list(found.remarks)
    if (roles == {"decode"} or roles == {"prefill"}) and len(pools) == 1:
        remarks.append(f"Only the {pools[0]['role']} pool is in the file; give both to read a pair of pools.")
    environment = {**found.environment, **variables}
    reading = read_engine(found.engine, pools=pools, gpus=gpus, environment=environment)
    changes: dict[str, Any] = {"form": found.form, "remarks": list(dict.fromkeys([*remarks, *reading.remarks]))}
    lengths = {"prompt": found.prompt, "output": found.output}
    if found.form == "srt-slurm recipe":
        changes["left"] = [*reading.left, *(name for name, value in lengths.items() if value is None)]
    changes |= {name: value for name, value in lengths.items() if value is not None}
    if found.precision and reading.weight_bits_hint is None and "weight_bits" in reading.left:
        hint = suggested_bits(found.precision)
        if hint is not None:
            changes["weight_bits_hint"] = hint[0]
            changes["remarks"].append(f"The file says {hint[1]}; the bits of the weights stay open.")
    return replace(reading, **changes)
