"""Deployments as commands of serving engines, and as manifests of Kubernetes, llm-d and Dynamo."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchFile
from engine.launch.launchers import comment_text
from engine.launch.report import LIST_TITLES
from engine.launch.serving_engines.contract import (
    SETTINGS,
    WRITTEN_SETTINGS,
    DeploymentOrder,
    ServerCommand,
    ServingEngine,
    WrittenDeployment,
)
from engine.launch.serving_engines.manifests import PlacedServer, dynamo_graph, kubernetes_manifests, llm_d_patches
from engine.launch.serving_engines.model_names import checkpoint_of
from engine.launch.serving_engines.registry import ENGINES, engine_of
from models import Model, ModelLike, model_of
from models.documents import did_you_mean, shown

__all__ = ["TARGETS", "engine_name_of", "is_serving_target", "write_deployment"]

TARGETS: Final[Mapping[str, str]] = {
    **{name: each.title for name, each in ENGINES.items()},
    "kubernetes": "Kubernetes",
    "llm-d": "llm-d",
    "dynamo": "Dynamo",
}
"""Titles by name of a target: commands of the engines first, then manifests."""
UNKNOWN_CHECKPOINT: Final = "REPLACE_WITH_CHECKPOINT"
_WHOLE: Final = ("tensor_par", "pipeline_par", "expert_par", "replicas", "batch", "weight_bits", "kv_bits")
_LARGEST: Final = 2**31 - 1
_BITS: Final = (16, 8, 4)
_LAUNCHES: Final = ("eager", "compiled", "graphs")
_UNSAID_FIGURES: Final[Mapping[str, str]] = {
    "attention_bits": "Attention bits: no flag states the precision of attention.",
    "compute_bits": "Compute bits: no flag states the precision of products.",
}


def is_serving_target(name: str) -> bool:
    """Return whether a name is one that deployments are written for, rather than a training framework.

    Args:
        name: as a person gives it.
    """
    wanted = _normalise(name)
    return wanted in TARGETS or any(wanted in each.aliases for each in ENGINES.values())


def _normalise(name: str) -> str:
    word = str(name).strip().lower().replace("_", "-")[:80]
    return {"llmd": "llm-d", "k8s": "kubernetes"}.get(word, word)


def engine_name_of(to: str, engine: str | None, deployment: Mapping[str, Any]) -> tuple[str, str]:
    """Return the target and the engine of a written deployment by name.

    Args:
        to: one of `TARGETS`, or another word for an engine.
        engine: engine within a manifest; that of the deployment, or vLLM, if None.
        deployment: its `engine` counts if the caller names none.

    Raises `LaunchError` for unknown names, and for two engines that differ.
    """
    wanted = _normalise(to)
    wanted = next((each.name for each in ENGINES.values() if wanted in each.aliases), wanted)
    if wanted not in TARGETS:
        hint = did_you_mean(wanted, list(TARGETS)).rstrip(".")
        raise LaunchError(f"There is no target {shown(to)}: known are {', '.join(TARGETS)}{hint}.")
    if wanted in ENGINES:
        if engine is not None and engine_of(engine).name != wanted:
            raise LaunchError(f"The target is {wanted} and the engine {shown(engine)}; leave the engine out.")
        return wanted, wanted
    stated = deployment.get("engine") if engine is None else engine
    try:
        return wanted, "vllm" if stated in (None, "") else engine_of(str(stated)).name
    except LaunchError:
        if engine is not None:
            raise
        return wanted, "vllm"


def write_deployment(
    deployment: Mapping[str, Any],
    model: ModelLike,
    *,
    to: str,
    engine: str | None = None,
    prefill: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
    gpus_per_node: int = 8,
    note: str = "",
) -> WrittenDeployment:
    """Return the configuration that starts a deployment.

    Args:
        deployment: values by field of `engine.serving.FIELDS`, such as a row of `explore`; figures are ignored. With
            `prefill`, the pool that decodes.
        model: name in the library, path, or the model.
        to: one of `TARGETS`.
        engine: `vllm`, `sglang` or `trtllm` within a manifest; vLLM if nothing names one.
        prefill: deployment of the pool that processes prompts, None for one that does both.
        settings: the engine's own: `prefix_cache`, `chunk` [tokens], `max_length` [tokens], `memory_fraction`,
            `mtp_tokens`.
        checkpoint: repository on Hugging Face, or path, of the weights; that of the model if it is known here.
        gpus_per_node: GPUs of a machine.
        note: a sentence at the top of the files, such as which deployment of several it is.

    Raises `LaunchError` for an invalid deployment, `UnsayableDeploymentError` where the engine has no words for it.
    """
    target, name = engine_name_of(to, engine, deployment)
    chosen, network = ENGINES[name], model_of(model)
    served = _check_checkpoint(checkpoint, network)
    size = _whole("gpus_per_node", gpus_per_node)
    asked = {"": deployment} if prefill is None else {"prefill": prefill, "decode": deployment}
    given = _check_settings(settings or {})
    placed, orders = [], []
    for role, fields in asked.items():
        order = DeploymentOrder(_check_fields(fields, role), given, network, served, size, role, note)
        server = chosen.write(order)
        placed.append(_place(server, order, target == "dynamo", chosen))
        orders.append(order)
    return _assemble(target, chosen, orders, placed)


def _check_checkpoint(checkpoint: str | None, network: Model) -> str:
    if checkpoint is None:
        return checkpoint_of(network.name) or UNKNOWN_CHECKPOINT
    return _check_word(checkpoint)


def _check_word(checkpoint: Any) -> str:
    text = checkpoint.strip() if isinstance(checkpoint, str) else ""
    if not text or len(text) > 400 or not text.isprintable() or text.startswith("-"):
        raise LaunchError(f"The checkpoint is {shown(checkpoint)}; give a repository on Hugging Face or a path.")
    return text


def _whole(name: str, value: Any, *, least: int = 1) -> int:
    try:
        found = int(value) if not isinstance(value, bool) and float(value) == int(value) else None
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not least <= found <= _LARGEST:
        raise LaunchError(f"{name} is {shown(value)}; it must be a whole number from {least}.")
    return found


def _is_absent(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and value != value)


def _check_fields(deployment: Mapping[str, Any], role: str) -> dict[str, Any]:
    """Return the fields of a deployment, checked; degrees that are absent are 1."""
    if not isinstance(deployment, Mapping):
        raise LaunchError(f"The deployment is {shown(deployment)}; it must have values by field name.")
    what = f"The {role} pool" if role else "The deployment"
    fields: dict[str, Any] = {}
    for name in (*_WHOLE, "prompt", "output"):
        value = deployment.get(name)
        if _is_absent(value):
            continue
        fields[name] = _whole(f"{what}'s {name}", value)
    if "tensor_par" not in fields:
        raise LaunchError(f"{what} does not say tensor_par; a configuration needs it.")
    for name in ("pipeline_par", "expert_par", "replicas"):
        fields.setdefault(name, 1)
    for name in ("weight_bits", "kv_bits"):
        if fields.get(name, 16) not in _BITS:
            raise LaunchError(f"{what} has {name} {fields[name]}; it must be 16, 8 or 4.")
    launch = deployment.get("launch")
    if not _is_absent(launch):
        if launch not in _LAUNCHES:
            raise LaunchError(f"{what} has launch {shown(launch)}; it must be one of {', '.join(_LAUNCHES)}.")
        fields["launch"] = launch
    for name in _UNSAID_FIGURES:
        if not _is_absent(deployment.get(name)):
            fields[name] = deployment[name]
    return fields


def _check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if _is_absent(value):
            continue
        if name in ("chunk", "max_length", "mtp_tokens", "lora_adapters", "lora_rank", "draft_tokens"):
            found[name] = _whole(name, value)
        elif name == "prefix_cache":
            if not isinstance(value, bool):
                raise LaunchError(f"prefix_cache is {shown(value)}; it must be true or false.")
            found[name] = value
        elif name == "memory_fraction":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
                raise LaunchError(f"memory_fraction is {shown(value)}; it must be a share above 0, up to 1.")
            found[name] = value
        elif name == "draft_bits":
            found[name] = _whole(name, value)
            if found[name] not in (16, 8, 4):
                raise LaunchError(f"draft_bits is {shown(value)}; it must be 16, 8 or 4.")
        elif name == "draft_checkpoint":
            found[name] = _check_word(value)
        elif name == "host_cache_gib":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
                raise LaunchError(f"host_cache_gib is {shown(value)}; it must be above 0, up to 1,000,000 GiB per GPU.")
            found[name] = value
        else:
            known = (*(each for each in SETTINGS if each != "speculation"), *WRITTEN_SETTINGS)
            raise LaunchError(f"There is no setting {shown(name)}{did_you_mean(str(name), known)}.")
    if len({"draft_checkpoint", "draft_tokens"} & found.keys()) == 1:
        raise LaunchError("draft_checkpoint and draft_tokens go together; give both.")
    if "draft_bits" in found and "draft_checkpoint" not in found:
        raise LaunchError("draft_bits is about a draft model; give draft_checkpoint and draft_tokens, too.")
    if "draft_tokens" in found and "mtp_tokens" in found:
        raise LaunchError("Give mtp_tokens or a draft model, not both.")
    return found


def _place(server: ServerCommand, order: DeploymentOrder, is_worker: bool, engine: ServingEngine) -> PlacedServer:
    """Return a server with the pods of one instance: nodes, and GPUs of each."""
    each = next(size for size in range(min(order.gpus_per_node, server.gpus), 0, -1) if server.gpus % size == 0)
    if is_worker:
        server = _dynamo_command(server, order, engine)
    return PlacedServer(server, engine, order.role, server.gpus // each, each)


def _dynamo_command(server: ServerCommand, order: DeploymentOrder, engine: ServingEngine) -> ServerCommand:
    """Return the command of Dynamo's worker around an engine."""
    flags = dict(server.flags)
    flags.pop("--disaggregation-mode", None)
    if engine.name == "vllm":
        flags = {"--model": order.checkpoint, **flags}
    elif engine.name == "trtllm":
        flags = {"--model": order.checkpoint, "--extra-engine-args": f"/config/{flags['--config']}"}
    if order.role:
        flags["--disaggregation-mode"] = order.role
    return replace(server, program=("python3", "-m", f"dynamo.{engine.name}"), flags=flags)


@dataclass(frozen=True)
class _Sentences:
    """Lists of a written configuration."""

    not_expressible: tuple[str, ...]
    remarks: tuple[str, ...]
    unsaid: tuple[str, ...]


def _collect_sentences(
    orders: Sequence[DeploymentOrder], placed: Sequence[PlacedServer], is_script: bool
) -> _Sentences:
    unsaid: dict[str, str] = {}
    remarks: list[str] = []
    for order, each in zip(orders, placed, strict=True):
        unsaid |= each.server.unsaid
        unsaid |= {name: text for name, text in _UNSAID_FIGURES.items() if name in order.fields}
        remarks += each.server.remarks
        if is_script and not each.role and each.server.copies > 1:
            remarks.append(f"The {each.server.copies:,} servers are independent: put a load balancer before them.")
    if orders[0].settings.get("draft_checkpoint") == UNKNOWN_CHECKPOINT:
        remarks.append(f"No checkpoint is recorded for the draft model: replace {UNKNOWN_CHECKPOINT} there.")
    bits = orders[0].settings.get("draft_bits", 16)
    if bits == 4 or (bits == 8 and placed[0].engine.name == "trtllm"):
        remarks.append(f"No flag says the {bits} bits of the draft model: name a checkpoint that has them.")
    if orders[0].checkpoint == UNKNOWN_CHECKPOINT:
        remarks.append(f"No checkpoint is recorded for {orders[0].model.name}: replace {UNKNOWN_CHECKPOINT}.")
    return _Sentences(tuple(dict.fromkeys(unsaid.values())), tuple(dict.fromkeys(remarks)), tuple(unsaid))


def _assemble(
    target: str, engine: ServingEngine, orders: Sequence[DeploymentOrder], placed: Sequence[PlacedServer]
) -> WrittenDeployment:
    lists = _collect_sentences(orders, placed, target in ENGINES)
    builders: Mapping[str, Callable[[Sequence[PlacedServer], str], tuple[list[LaunchFile], list[str]]]] = {
        "kubernetes": kubernetes_manifests,
        "llm-d": llm_d_patches,
        "dynamo": dynamo_graph,
    }
    slug = _slug(orders[0].model.name)
    if target in builders:
        files, more = builders[target](placed, slug)
        lists = replace(lists, remarks=(*lists.remarks, *more))
    else:
        files, more = _scripts(placed, orders[0])
        lists = replace(lists, remarks=(*lists.remarks, *more))
    title = TARGETS[target] if target in ENGINES else f"{TARGETS[target]} with {engine.title}"
    header = _header(title, engine, orders, placed, lists)
    commented = tuple(
        replace(each, text=_with_header(each.text, header)) if number == 0 else each
        for number, each in enumerate(files)
    )
    return WrittenDeployment(
        target,
        title,
        engine.version,
        commented,
        {each.role or "server": {**each.server.flags, **each.server.yaml} for each in placed},
        lists.not_expressible,
        (),
        lists.remarks,
        lists.unsaid,
    )


def _slug(name: str) -> str:
    """Return a name as Kubernetes accepts it: lower-case letters, digits and dashes, at most 40."""
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
    return kept.strip("-")[:40].strip("-") or "model"


def _with_header(text: str, header: str) -> str:
    if text.startswith("#!"):
        first, _, rest = text.partition("\n")
        return f"{first}\n{header}\n{rest}"
    return f"{header}\n{text}"


def _header(
    title: str,
    engine: ServingEngine,
    orders: Sequence[DeploymentOrder],
    placed: Sequence[PlacedServer],
    lists: _Sentences,
) -> str:
    gpus = sum(each.server.gpus * each.server.copies for each in placed)
    network = comment_text(orders[0].model.title or orders[0].model.name)
    lines = [f"{title} {engine.version}: {network} on {gpus:,} GPUs."]
    for each in placed:
        if each.role or each.server.copies > 1 or each.nodes > 1:
            who = f"{each.role.capitalize()} pool" if each.role else "Servers"
            where = f"{each.nodes} nodes of {each.gpus}" if each.nodes > 1 else f"{each.gpus}"
            lines.append(f"{who}: {each.server.copies:,}, each on {where} GPUs.")
    if orders[0].note:
        lines.append(comment_text(orders[0].note))
    for heading, sentences in (
        (LIST_TITLES["not_expressible"], lists.not_expressible),
        (LIST_TITLES["remarks"], lists.remarks),
    ):
        if sentences:
            lines += ["", f"{heading}:", *(f"- {comment_text(each)}" for each in sentences)]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def _scripts(placed: Sequence[PlacedServer], order: DeploymentOrder) -> tuple[list[LaunchFile], list[str]]:
    """Return one script per pool, which writes the engine's YAML and starts as many servers as a machine holds."""
    files: list[LaunchFile] = []
    remarks: list[str] = []
    for each in placed:
        name = f"{each.role}.sh" if each.role else "serve.sh"
        files.append(LaunchFile(name, _script(each, order, remarks), "bash"))
    return files, remarks


def _script(each: PlacedServer, order: DeploymentOrder, remarks: list[str]) -> str:
    lines = ["#!/bin/bash", "set -euo pipefail", ""]
    server, role = each.server, f"The {each.role} pool" if each.role else "This script"
    if each.server.yaml:
        path = each.server.flags["--config"]
        lines += [f"cat > {shlex.quote(path)} <<'EOF'", each.yaml_text().rstrip("\n"), "EOF", ""]
    if each.nodes > 1:
        if server.copies > 1:
            remarks.append(f"{role} starts one server on {each.nodes} nodes; run it on {server.copies} such groups.")
        remarks.append("Run the script on every node, with NODE_RANK from 0 and MASTER_ADDR set to the first one.")
        lines.append(each.node_command("${NODE_RANK:-0}", "${MASTER_ADDR:-localhost}"))
        return "\n".join(lines) + "\n"
    on_node = min(server.copies, max(order.gpus_per_node // server.gpus, 1))
    machines = -(-server.copies // on_node)
    if machines > 1:
        last = server.copies - on_node * (machines - 1)
        rest = "" if last == on_node else f", the last one with {last} of its {on_node} servers"
        remarks.append(f"{role} starts the servers of one machine; run it on {machines:,} machines{rest}.")
    if on_node == 1:
        lines.append(each.command(None))
        return "\n".join(lines) + "\n"
    for number in range(on_node):
        first = number * server.gpus
        visible = ",".join(str(gpu) for gpu in range(first, first + server.gpus))
        lines.append(f"CUDA_VISIBLE_DEVICES={visible} {each.command(8000 + number)} &")
    lines.append("wait")
    return "\n".join(lines) + "\n"
