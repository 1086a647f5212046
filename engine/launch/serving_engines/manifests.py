"""Manifests that start servers: Deployments and LeaderWorkerSets of Kubernetes, patches of llm-d, graphs of Dynamo."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.launch.contract import LaunchFile
from engine.launch.serving_engines.contract import ServerCommand, ServingEngine, UnsayableDeploymentError

__all__ = ["PlacedServer", "dynamo_graph", "kubernetes_manifests", "llm_d_patches"]

IMAGE: Final = "REPLACE_WITH_IMAGE"
TOKEN_SECRET: Final = "REPLACE_WITH_SECRET"
_PORT: Final = 8000
_RPC_PORT: Final = 29_500
_PORT_FLAGS: Final[Mapping[str, str]] = {"vllm": "--port", "sglang": "--port", "trtllm": "--port"}
_FILLED: Final = (
    f"Replace {IMAGE} by an image of the engine, {TOKEN_SECRET} by the secret of your Hugging Face token.",
    "Probes and volumes are not written.",
)


@dataclass(frozen=True)
class PlacedServer:
    """Server of one instance and the machines that it runs on."""

    server: ServerCommand
    engine: ServingEngine
    role: str
    nodes: int
    gpus: int
    """GPUs of one node."""

    def words(self, more: Mapping[str, Any] | None = None) -> list[str]:
        """Return the command as words, values unquoted.

        Args:
            more: flags to add.
        """
        found = list(self.server.program)
        for name, value in {**self.server.flags, **(more or {})}.items():
            found += [name] if value is True else [name, str(value)]
        return found

    def command(self, port: int | None) -> str:
        """Return the command as a line of a shell script.

        Args:
            port: that it listens on; the engine's own if None.
        """
        return _fold(self.words({} if port is None else {_PORT_FLAGS[self.engine.name]: port}))

    def node_command(self, rank: str, address: str) -> str:
        """Return the command of one node of several as a line of a shell script.

        Args:
            rank: expression of the node's number.
            address: expression of the first node's address.

        Raises `UnsayableDeploymentError` for an engine that needs a launcher beside the command.
        """
        name, server = self.engine.name, self.server
        if name == "trtllm":
            launcher = ["mpirun", "-n", str(server.gpus), "--map-by", f"ppr:{self.gpus}:node"]
            return _fold([*launcher, "trtllm-llmapi-launch", *self.words()])
        if name == "sglang":
            raw = {"--nnodes": self.nodes, "--node-rank": rank, "--dist-init-addr": f"{address}:{_RPC_PORT}"}
            return _fold(self.words(), raw)
        data = int(server.flags.get("--data-parallel-size", 1))
        if data > 1 and data % self.nodes == 0:
            local = data // self.nodes
            raw = {
                "--data-parallel-size-local": local,
                "--data-parallel-start-rank": f"$(({rank} * {local}))",
                "--data-parallel-address": address,
                "--data-parallel-rpc-port": _RPC_PORT,
            }
        else:
            raw = {"--nnodes": self.nodes, "--node-rank": rank, "--master-addr": address, "--master-port": _RPC_PORT}
        return _on_rank(rank, _fold(self.words(), raw))

    def yaml_text(self) -> str:
        """Return the engine's own YAML."""
        return dump_yaml(dict(self.server.yaml))

    @property
    def suffix(self) -> str:
        """Return the ending of names in manifests."""
        return f"-{self.role}" if self.role else ""


def _on_rank(rank: str, command: str) -> str:
    """Return a command whose other nodes than the first run without an HTTP server."""
    return f'if [ "{rank}" = "0" ]; then\n  {command}\nelse\n  {command} \\\n    --headless\nfi'


def _fold(words: Sequence[str], raw: Mapping[str, Any] | None = None) -> str:
    """Return words as a command over several lines, quoted for a shell; values of `raw` stay expressions."""
    lines: list[str] = []
    for word in words:
        quoted = shlex.quote(word)
        if word.startswith("--") or not lines:
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    lines += [
        f'{name} "{value}"' if isinstance(value, str) else f"{name} {value}" for name, value in (raw or {}).items()
    ]
    return " \\\n    ".join(lines)


def dump_yaml(document: Any) -> str:
    """Return a document as YAML.

    Args:
        document: tables, lists and plain values.
    """
    import yaml

    return str(yaml.dump(document, Dumper=_block_dumper(), sort_keys=False, width=1_000, allow_unicode=True))


def _block_dumper() -> Any:
    import yaml

    class BlockDumper(yaml.SafeDumper):
        """Writes texts of several lines as blocks, and no aliases."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def represent_text(dumper: Any, text: str) -> Any:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    BlockDumper.add_representer(str, represent_text)
    return BlockDumper


def _environment() -> list[dict[str, Any]]:
    return [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": TOKEN_SECRET, "key": "HF_TOKEN"}}}]


def _escaped(words: Sequence[str]) -> list[str]:
    # Kubernetes replaces $(NAME) in lists of arguments; $$ is a dollar sign.
    return [word.replace("$(", "$$(") for word in words]


def _container(each: PlacedServer, name: str, slug: str, script: str | None = None) -> dict[str, Any]:
    """Return the container of a server; its script where the command needs a shell."""
    words = _mounted(each)
    gpus = {"nvidia.com/gpu": str(each.gpus)}
    container: dict[str, Any] = {"name": name, "image": IMAGE}
    if script is None:
        split = len(each.server.program) - (1 if each.engine.name in ("vllm", "trtllm") and not _is_worker(each) else 0)
        container |= {"command": _escaped(words[:split]), "args": _escaped(words[split:])}
    else:
        container |= {"command": ["/bin/bash", "-c"], "args": [script]}
    container |= {
        "env": _environment(),
        "ports": [{"containerPort": _PORT, "name": "http"}],
        "resources": {"limits": gpus, "requests": dict(gpus)},
    }
    if each.server.yaml:
        container["volumeMounts"] = [{"name": "engine-config", "mountPath": "/config"}]
    return container


def _is_worker(each: PlacedServer) -> bool:
    return any(word.startswith("dynamo.") for word in each.server.program)


def _mounted(each: PlacedServer) -> list[str]:
    """Return the words of a server whose YAML is mounted at /config."""
    if not each.server.yaml or _is_worker(each):
        return each.words()
    more = {"--config": f"/config/{each.server.flags['--config']}"}
    return each.words({**more, "--host": "0.0.0.0"})


def _listening(each: PlacedServer) -> PlacedServer:
    """Return a server that listens on the port of its pod."""
    if _is_worker(each):
        return each
    more: dict[str, Any] = {"--port": _PORT}
    if each.engine.name != "vllm":
        more = {"--host": "0.0.0.0", **more}
    server = each.server
    made = ServerCommand(
        server.program, {**server.flags, **more}, server.gpus, server.copies, yaml=server.yaml, unsaid=server.unsaid
    )
    return PlacedServer(made, each.engine, each.role, each.nodes, each.gpus)


def _config_map(each: PlacedServer, slug: str) -> dict[str, Any]:
    name = f"{each.role}_engine.yaml" if each.role else "engine.yaml"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{slug}{each.suffix}-engine"},
        "data": {name: each.yaml_text()},
    }


def _pod(each: PlacedServer, container: dict[str, Any], slug: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [container]}
    if each.server.yaml:
        spec["volumes"] = [{"name": "engine-config", "configMap": {"name": f"{slug}{each.suffix}-engine"}}]
    return spec


def _join(documents: Sequence[Mapping[str, Any]]) -> str:
    return "---\n".join(dump_yaml(each) for each in documents)


def _refuse_nodes(each: PlacedServer) -> None:
    if each.nodes > 1 and each.engine.name == "trtllm":
        raise UnsayableDeploymentError(
            f"A server of {each.server.gpus} GPUs needs MPI between {each.nodes} pods with TensorRT-LLM; write it for "
            f"dynamo, or give nodes of {each.server.gpus} GPUs."
        )


def _workload(each: PlacedServer, slug: str, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a Deployment, or a LeaderWorkerSet for a server on several nodes."""
    name = f"{slug}{each.suffix}"
    _refuse_nodes(each)
    marked = {"app": name, **labels}
    if each.nodes == 1:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": marked},
            "spec": {
                "replicas": each.server.copies,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": marked},
                    "spec": _pod(each, _container(each, "server", slug), slug),
                },
            },
        }
    script = each.node_command("${LWS_WORKER_INDEX:-0}", "${LWS_LEADER_ADDRESS}")
    template = {
        "metadata": {"labels": marked},
        "spec": _pod(each, _container(each, "server", slug, script), slug),
    }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": marked},
        "spec": {
            "replicas": each.server.copies,
            "leaderWorkerTemplate": {"size": each.nodes, "workerTemplate": template},
        },
    }


def kubernetes_manifests(placed: Sequence[PlacedServer], slug: str) -> tuple[list[LaunchFile], list[str]]:
    """Return one file of manifests: a workload and a service for every pool.

    Args:
        placed: servers of the pools.
        slug: name of the model as Kubernetes accepts it.

    Raises `UnsayableDeploymentError` where a server needs more than its command on every node.
    """
    documents: list[dict[str, Any]] = []
    for given in placed:
        each = _listening(given)
        if each.server.yaml:
            documents.append(_config_map(each, slug))
        labels = {"role": each.role} if each.role else {}
        documents.append(_workload(each, slug, labels))
        name = f"{slug}{each.suffix}"
        selector = {"app": name}
        if each.nodes > 1:
            selector["leaderworkerset.sigs.k8s.io/worker-index"] = "0"
        documents.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": name},
                "spec": {"selector": selector, "ports": [{"name": "http", "port": _PORT, "targetPort": "http"}]},
            }
        )
    remarks = [*_FILLED]
    if len(placed) > 1:
        remarks.append("Prefill and decode need a router that sends a request to both; llm-d and Dynamo have one.")
    return [LaunchFile("deployment.yaml", _join(documents), "yaml")], remarks


def llm_d_patches(placed: Sequence[PlacedServer], slug: str) -> tuple[list[LaunchFile], list[str]]:
    """Return a manifest per role with llm-d's labels, as its guides patch their model servers.

    Args:
        placed: servers of the pools.
        slug: name of the model as Kubernetes accepts it.

    Raises `UnsayableDeploymentError` where a server needs more than its command on every node.
    """
    files = []
    for given in placed:
        each = _listening(given)
        labels = {
            "llm-d.ai/inference-serving": "true",
            "llm-d.ai/model": slug,
            "llm-d.ai/role": each.role or "prefill-decode",
            "llm-d.ai/engine-type": each.engine.name,
        }
        documents = [_config_map(each, slug)] if each.server.yaml else []
        documents.append(_workload(each, slug, labels))
        files.append(
            LaunchFile(f"patch-{each.role}.yaml" if each.role else "modelserver.yaml", _join(documents), "yaml")
        )
    remarks = [*_FILLED, "Apply the files with kustomize over a guide of llm-d, which brings router and InferencePool."]
    return files, remarks


def dynamo_graph(placed: Sequence[PlacedServer], slug: str) -> tuple[list[LaunchFile], list[str]]:
    """Return a DynamoGraphDeployment (v1beta1): a frontend and a worker per pool.

    Args:
        placed: servers of the pools.
        slug: name of the model as Kubernetes accepts it.
    """
    frontend = {
        "name": "Frontend",
        "type": "frontend",
        "replicas": 1,
        "podTemplate": {"spec": {"containers": [{"name": "main", "image": IMAGE}]}},
    }
    components: list[dict[str, Any]] = [frontend]
    documents: list[dict[str, Any]] = []
    for each in placed:
        if each.server.yaml:
            documents.append(_config_map(each, slug))
        container = _container(each, "main", slug)
        del container["ports"]
        component: dict[str, Any] = {
            "name": f"{each.role.capitalize()}Worker",
            "type": each.role or "worker",
            "replicas": each.server.copies,
        }
        if each.nodes > 1:
            component["multinode"] = {"nodeCount": each.nodes}
        component["podTemplate"] = {"spec": _pod(each, container, slug)}
        components.append(component)
    documents.append(
        {
            "apiVersion": "nvidia.com/v1beta1",
            "kind": "DynamoGraphDeployment",
            "metadata": {"name": slug},
            "spec": {"backendFramework": placed[0].engine.name, "components": components},
        }
    )
    return [LaunchFile("dynamo.yaml", _join(documents), "yaml")], [*_FILLED]
