"""Servers in manifests of Kubernetes, llm-d, Dynamo and srt-slurm: commands in containers, GPUs, copies and roles."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.report import parse_integer
from engine.launch.serving_engines.commands import FoundServer, find_servers
from engine.launch.serving_engines.variables import check_environment
from models.documents import shown

__all__ = ["ManifestPools", "find_pools", "is_manifest"]

_GPU_NAMES: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu")
_WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "Pod", "Job")
_ROLES: Final = ("prefill", "decode")
_ROLE_LABELS: Final = ("llm-d.ai/role", "disaggregatedset.x-k8s.io/role", "role")
_SUBSTITUTED: Final = re.compile(r"\$\((\w+)\)")
"""`$(NAME)` in a list of arguments, which Kubernetes replaces by a variable of the container."""
_ENGINE_SECTIONS: Final[Mapping[str, str]] = {
    "vllm_config": "vllm",
    "sglang_config": "sglang",
    "trtllm_config": "trtllm",
}


@dataclass(frozen=True)
class ManifestPools:
    """Pools of a manifest, as `read_engine` takes them."""

    engine: str
    form: str
    """Kind of the manifest in words."""
    pools: tuple[Mapping[str, Any], ...]
    environment: Mapping[str, str]
    remarks: tuple[str, ...] = ()
    prompt: int | None = None
    output: int | None = None
    precision: str = ""
    """Precision of the checkpoint, as the file says; empty where it does not."""


@dataclass(frozen=True)
class _Workload:
    """Pods that run one server."""

    name: str
    form: str
    pod: Mapping[str, Any]
    replicas: Any = 1
    nodes: Any = 1
    gpus: Any = None
    labels: Mapping[str, Any] | None = None
    role: str = ""
    environment: Mapping[str, str] | None = None


def is_manifest(document: Mapping[str, Any]) -> bool:
    """Return whether a table of YAML is a manifest that may hold servers.

    Args:
        document: of the file.
    """
    if "apiVersion" in document and "kind" in document:
        return True
    if isinstance(document.get("backend"), Mapping) and isinstance(document.get("resources"), Mapping):
        return True
    if "context_servers" in document or "generation_servers" in document:
        return True
    return any(isinstance(document.get(role), Mapping) and "containers" in document[role] for role in _ROLES)


def find_pools(documents: Sequence[Mapping[str, Any]], name: str, variables: Mapping[str, str]) -> ManifestPools | None:
    """Return the servers of manifests; None where they start none.

    Args:
        documents: tables of the file.
        name: of the file.
        variables: values of variables that its containers do not set.

    Raises `LaunchError` for a manifest with servers of several engines or an invalid number.
    """
    for document in documents:
        if isinstance(document.get("backend"), Mapping) and isinstance(document.get("resources"), Mapping):
            return _slurm_pools(document)
        if "context_servers" in document or "generation_servers" in document:
            return _disaggregated_pools(document)
    files = _config_files(documents)
    pools: list[dict[str, Any]] = []
    forms: list[str] = []
    engines: list[str] = []
    remarks: list[str] = []
    for workload in _workloads(documents):
        for server, gpus in _servers_of(workload, name, files, variables):
            pool = _pool_of(server, workload, gpus)
            if pool in pools:
                continue
            pools.append(pool)
            forms.append(workload.form)
            engines.append(server.engine)
            remarks += server.remarks
    if not pools:
        return None
    if len(set(engines)) > 1:
        raise LaunchError(
            f"{shown(name)[1:-1]} starts servers of {' and '.join(sorted(set(engines)))}; give those of one engine."
        )
    return ManifestPools(engines[0], forms[0], tuple(pools), {}, tuple(dict.fromkeys(remarks)))


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _workloads(documents: Sequence[Mapping[str, Any]]) -> Iterator[_Workload]:
    for document in documents:
        kind, spec = str(document.get("kind") or ""), _table(document.get("spec"))
        labels = _table(_table(document.get("metadata")).get("labels"))
        name = str(_table(document.get("metadata")).get("name") or "")
        if kind == "List":
            yield from _workloads([_table(item) for item in _list(document.get("items"))])
        elif kind == "Pod":
            yield _Workload(name, "Kubernetes Pod", spec, labels=labels)
        elif kind in _WORKLOADS:
            template = _table(spec.get("template"))
            own = _table(_table(template.get("metadata")).get("labels"))
            yield _Workload(
                name,
                f"Kubernetes {kind}",
                _table(template.get("spec")),
                spec.get("replicas", 1),
                labels={**labels, **own},
            )
        elif kind == "LeaderWorkerSet":
            yield _group(name, "LeaderWorkerSet", spec, labels)
        elif kind == "DisaggregatedSet":
            for role in _list(spec.get("roles")):
                inner = _table(_table(role).get("spec")) or _table(role)
                found = str(_table(role).get("name") or "")
                yield _group(found or name, "DisaggregatedSet (LeaderWorkerSet)", inner, labels, found)
        elif kind == "DynamoGraphDeployment":
            yield from _dynamo_workloads(document, spec)
        elif not kind:
            yield from _values_workloads(document)


def _group(name: str, form: str, spec: Mapping[str, Any], labels: Mapping[str, Any], role: str = "") -> _Workload:
    """Return the pods of a LeaderWorkerSet; `size` counts the leader."""
    template = _table(spec.get("leaderWorkerTemplate"))
    leader = _table(template.get("leaderTemplate")) or _table(template.get("workerTemplate"))
    worker = _table(template.get("workerTemplate"))
    size = template.get("size", 1)
    own = _table(_table(worker.get("metadata")).get("labels"))
    own = {**own, **_table(_table(leader.get("metadata")).get("labels"))}
    pod = _table(leader.get("spec")) or _table(worker.get("spec"))
    variables = {"LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": "0"}
    return _Workload(name, form, pod, spec.get("replicas", 1), size, None, {**labels, **own}, role, variables)


def _dynamo_workloads(document: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[_Workload]:
    version = str(document.get("apiVersion") or "").rpartition("/")[2]
    shared = _environment_of(_list(spec.get("envs")) or _list(spec.get("env")))
    form = f"Dynamo {version}" if version else "Dynamo"
    services = [(str(name), _table(service)) for name, service in _table(spec.get("services")).items()]
    services += [(str(_table(each).get("name") or ""), _table(each)) for each in _list(spec.get("components"))]
    for name, service in services:
        kinds = [str(service.get(key) or "") for key in ("subComponentType", "type", "componentType")]
        if "frontend" in kinds or "planner" in kinds or "router" in kinds:
            continue
        extra = _table(service.get("extraPodSpec"))
        main = _table(extra.get("mainContainer"))
        pod = {"containers": [main]} if main else _table(_table(service.get("podTemplate")).get("spec"))
        resources = _table(service.get("resources"))
        gpus = _table(resources.get("limits")).get("gpu", _table(resources.get("requests")).get("gpu"))
        role = next((kind for kind in kinds if kind in _ROLES), "")
        own = _environment_of(_list(service.get("envs")))
        nodes = _table(service.get("multinode")).get("nodeCount", 1)
        yield _Workload(name, form, pod, service.get("replicas", 1), nodes, gpus, None, role, {**shared, **own})


def _values_workloads(document: Mapping[str, Any]) -> Iterator[_Workload]:
    """Yield the pools of llm-d's Helm values (ModelService)."""
    artifacts = _table(document.get("modelArtifacts"))
    model = str(artifacts.get("name") or "") or str(artifacts.get("uri") or "").partition("://")[2]
    for role in _ROLES:
        pool = _table(document.get(role))
        if not pool or pool.get("create") is False:
            continue
        parallelism, containers = _table(pool.get("parallelism")), []
        for container in _list(pool.get("containers")):
            made = dict(_table(container))
            if not made.get("command") and str(made.get("modelCommand") or "vllmServe") == "vllmServe":
                words = ["vllm", "serve", model] if model else ["vllm", "serve"]
                tensor, data = parallelism.get("tensor"), parallelism.get("data")
                words += [] if tensor is None else ["--tensor-parallel-size", str(tensor)]
                words += [] if data is None else ["--data-parallel-size", str(data)]
                made["command"] = words
            containers.append(made)
        yield _Workload(role, "llm-d values", {"containers": containers}, pool.get("replicas", 1), 1, None, None, role)


def _environment_of(entries: Sequence[Any]) -> dict[str, str]:
    found = {}
    for entry in entries[:2_000]:
        if isinstance(entry, Mapping) and entry.get("name") and entry.get("value") is not None:
            found[str(entry["name"])] = str(entry["value"])
    found = check_environment(found)
    # Variables of a container may name earlier ones.
    return {name: _SUBSTITUTED.sub(lambda match: found.get(match[1], match[0]), text) for name, text in found.items()}


def _servers_of(
    workload: _Workload, name: str, files: Mapping[str, str], variables: Mapping[str, str]
) -> Iterator[tuple[FoundServer, int | None]]:
    """Yield the servers of a pod with the GPUs of their container."""
    for container in _list(workload.pod.get("containers"))[:20]:
        own = _table(container)
        if not own:
            continue
        environment = {**variables, **(workload.environment or {}), **_environment_of(_list(own.get("env")))}
        script = _script_of(own, environment)
        gpus = workload.gpus if workload.gpus is not None else _gpus_of(own)
        count = None if gpus is None else parse_integer(gpus, "GPUs of a container", 0)
        for server in find_servers(script, name, environment, files)[:4]:
            yield server, count


def _script_of(container: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return what a container runs as text of a shell: the script of `sh -c`, or the words of its list."""
    command, arguments = container.get("command"), container.get("args")
    words = [str(word) for part in (command, arguments) for word in ([part] if isinstance(part, str) else _list(part))]
    if len("".join(words)) > 200_000:
        raise LaunchError("The command of a container has more than 200,000 characters; launch commands have hundreds.")
    place = next((number for number, word in enumerate(words) if re.match(r"-\w*c\Z", word)), None)
    if place is not None and any(word.rpartition("/")[2] in ("sh", "bash", "dash") for word in words[:place]):
        return _SUBSTITUTED.sub(r"${\1}", "\n".join(words[place + 1 :]))
    if len(words) == 1 and " " in words[0]:
        return _SUBSTITUTED.sub(r"${\1}", words[0])
    filled = [_SUBSTITUTED.sub(lambda match: environment.get(match[1], match[0]), word) for word in words]
    image = str(container.get("image") or "")
    if filled and filled[0].startswith("-") and image:
        filled = [image, *filled]
    return shlex.join(filled)


def _gpus_of(container: Mapping[str, Any]) -> Any:
    resources = _table(container.get("resources"))
    for section in ("limits", "requests"):
        table = _table(resources.get(section))
        for name in _GPU_NAMES:
            if table.get(name) is not None:
                return table[name]
    return None


def _config_files(documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the files of ConfigMaps by their name."""
    found = {}
    for document in documents:
        if document.get("kind") == "ConfigMap":
            for key, text in _table(document.get("data")).items():
                found[str(key)] = str(text)
    return found


def _pool_of(server: FoundServer, workload: _Workload, gpus: int | None) -> dict[str, Any]:
    role = workload.role if workload.role in _ROLES else ""
    labels = workload.labels or {}
    role = role or next((str(labels[key]) for key in _ROLE_LABELS if labels.get(key) in _ROLES), "") or server.role
    if not role:
        role = next((each for each in _ROLES if each in workload.name.lower()), "agg")
    nodes = parse_integer(workload.nodes, "Pods of a group")
    return {
        "role": role,
        "replicas": parse_integer(workload.replicas, "replicas", 0) * server.copies,
        "nodes_per_replica": nodes,
        **({} if not gpus else {"gpus_per_node": gpus}),
        "command": server.command,
        "flags": dict(server.flags),
        "yaml": dict(server.yaml),
    }


def _slurm_pools(document: Mapping[str, Any]) -> ManifestPools | None:
    """Return the pools of an srt-slurm recipe: workers of a role over its nodes."""
    backend, resources = _table(document["backend"]), _table(document["resources"])
    section = next((name for name in _ENGINE_SECTIONS if isinstance(backend.get(name), Mapping)), None)
    if section is None:
        return None
    pools: list[Mapping[str, Any]] = []
    each_node = parse_integer(resources.get("gpus_per_node", 8), "resources.gpus_per_node")
    for key, short in (("prefill", "prefill"), ("decode", "decode"), ("aggregated", "agg")):
        flags = _table(_table(backend[section]).get(key))
        if not flags:
            continue
        workers = parse_integer(resources.get(f"{short}_workers", 1), f"resources.{short}_workers", 0)
        stated = resources.get(f"gpus_per_{short}")
        nodes = parse_integer(resources.get(f"{short}_nodes", 1), f"resources.{short}_nodes", 0)
        gpus = (
            parse_integer(stated, f"gpus_per_{short}") if stated is not None else nodes * each_node // max(workers, 1)
        )
        held = max(gpus // each_node, 1) if gpus else 1
        given = {str(name): value for name, value in flags.items()}
        engine = _ENGINE_SECTIONS[section]
        content = {"yaml": given} if engine == "trtllm" else {"flags": given}
        pools.append(
            {
                "role": short,
                "replicas": workers,
                "nodes_per_replica": held,
                **({"gpus_per_node": gpus // held} if gpus else {}),
                "command": f"dynamo.{engine}",
                **content,
            }
        )
    if not pools:
        return None
    benchmark, model = _table(document.get("benchmark")), _table(document.get("model"))
    lengths = [benchmark.get(name) for name in ("isl", "osl")]
    prompt, output = (None if each is None else parse_integer(each, "benchmark length") for each in lengths)
    path = str(model.get("path") or "")
    environment = {"MODEL_PATH": path} if "/" in path else {}
    return ManifestPools(
        _ENGINE_SECTIONS[section],
        "srt-slurm recipe",
        tuple(pools),
        environment,
        (),
        prompt,
        output,
        f"{model.get('precision') or ''} {path}".strip(),
    )


def _disaggregated_pools(document: Mapping[str, Any]) -> ManifestPools:
    """Return the pools of `trtllm-serve disaggregated`: context servers prefill, generation servers decode.

    Raises `LaunchError` where one of the two is missing.
    """
    outer = {
        str(key): value
        for key, value in document.items()
        if key not in ("context_servers", "generation_servers", "hostname", "port", "num_instances", "model")
    }
    pools = []
    for role, section in (("prefill", "context_servers"), ("decode", "generation_servers")):
        if not isinstance(document.get(section), Mapping):
            raise LaunchError(f"{section} must be a table: trtllm-serve disaggregated has servers of both kinds.")
        own = {str(key): value for key, value in document[section].items()}
        count = parse_integer(own.pop("num_instances", 1), f"{section}.num_instances", 0)
        own = {key: value for key, value in own.items() if key not in ("urls", "router")}
        pools.append(
            {
                "role": role,
                "replicas": count,
                "command": "trtllm-serve",
                "flags": {} if document.get("model") is None else {"model": str(document["model"])},
                "yaml": {**outer, **own},
            }
        )
    return ManifestPools("trtllm", "trtllm-serve disaggregated", tuple(pools), {})
