"""Contract of a serving engine: its methods, their inputs and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from engine.launch.contract import LaunchError, LaunchFile, Written
from models import Model

if TYPE_CHECKING:
    from engine.launch.serving_engines.engine_flags import EngineFlags

__all__ = [
    "DEPLOYMENT_FIELDS",
    "LEFT_FIELDS",
    "SETTINGS",
    "WRITTEN_SETTINGS",
    "DeploymentOrder",
    "EngineInstance",
    "EngineReading",
    "ServerCommand",
    "ServingEngine",
    "UnsayableDeploymentError",
    "WrittenDeployment",
]

DEPLOYMENT_FIELDS: Final = (
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "replicas",
    "batch",
    "weight_bits",
    "kv_bits",
    "launch",
    "prompt",
    "output",
)
"""Fields of a deployment that a configuration of an engine can say or leave open, named as in `engine.serving`."""
LEFT_FIELDS: Final = ("batch", "weight_bits", "kv_bits", "prompt", "output")
"""Fields that configurations leave to other sources: no default of an engine stands for them."""
SETTINGS: Final = (
    "prefix_cache",
    "chunk",
    "max_length",
    "memory_fraction",
    "mtp_tokens",
    "lora_adapters",
    "lora_rank",
    "host_cache_gib",
    "speculation",
)
"""Settings of an engine beside the fields of a deployment, in the engine's own numbers."""


WRITTEN_SETTINGS: Final = ("draft_checkpoint", "draft_tokens", "draft_bits")
"""Settings that are written only: weights of a draft model and its tokens per step, together, and the bits of its
weights. Read, they are the `draft`."""


class UnsayableDeploymentError(LaunchError):
    """The engine has no words for a deployment; the message gives the nearest one that it has."""


@dataclass(frozen=True)
class EngineInstance:
    """One server as its flags describe it, before copies of it are counted."""

    fields: Mapping[str, Any]
    """Values by field; `replicas` are those within the instance. Open fields are absent."""
    settings: Mapping[str, Any]
    gpus: int | None
    """GPUs of the instance; None where a degree is open."""
    rejected: str = ""
    """Layout of experts that no deployment here describes; empty without one."""
    model: str = ""
    """Checkpoint that it serves; empty where the configuration does not say."""


@dataclass(frozen=True)
class EngineReading:
    """Deployment, or pools of it, that a configuration of a serving engine describes. Nothing is invented.

    `prefix_cache`, `chunk` [tokens], `max_length` [tokens], `memory_fraction` and `mtp_tokens` are the engine's own
    numbers and None where the configuration does not set them. Where pools differ, their values are within `pools`.
    """

    engine: str
    deployment: dict[str, Any] | None = None
    """Values by field of `engine.serving.FIELDS`; None for pools."""
    pools: dict[str, dict[str, Any]] | None = None
    """Values by field by role, prefill and decode; None for one deployment."""
    prefix_cache: bool | None = None
    chunk: int | None = None
    max_length: int | None = None
    memory_fraction: float | None = None
    mtp_tokens: int | None = None
    lora_adapters: int | None = None
    """Adapters of low rank in memory at once; None without any."""
    lora_rank: int | None = None
    host_cache_gib: float | None = None
    """Host memory for the cache of one GPU [GiB]; None without any."""
    speculation: dict[str, Any] | None = None
    """Kind and draft tokens of speculation that is not the model's own multi-token prediction."""
    draft: dict[str, Any] | None = None
    """Speculation in this project's terms: `draft_tokens`, and what the configuration states of `draft_model` (in the
    library), `draft_checkpoint`, `draft_bits` and `accepted_tokens`; None without, or with no number of tokens."""
    open_speculation: str = ""
    """Remark on the open terms of speculation; empty without any."""
    prompt: int | None = None
    output: int | None = None
    weight_bits_hint: int | None = None
    """Bits that the name of the checkpoint suggests; never set as a value."""
    rejected_by_us: str | None = None
    left: list[str] = field(default_factory=list)
    not_modelled: list[str] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    gpus: int | None = None
    """GPUs of all pools and copies."""
    model: str = ""
    """Checkpoint, as the configuration names it."""
    model_name: str | None = None
    """The same model in the library; None where it is not known there."""
    form: str = "command"
    """Kind of file that it was read from, in words."""

    @property
    def title(self) -> str:
        """Name of the engine on screen."""
        from engine.launch.serving_engines.registry import ENGINES

        return ENGINES[self.engine].title

    @property
    def version(self) -> str:
        """Version of the engine whose arguments are known."""
        from engine.launch.serving_engines.registry import ENGINES

        return ENGINES[self.engine].version


@dataclass(frozen=True)
class DeploymentOrder:
    """Pool of a deployment to write.

    `fields` has the fields of `DEPLOYMENT_FIELDS` that are set, `settings` the settings of `SETTINGS`.
    """

    fields: Mapping[str, Any]
    settings: Mapping[str, Any]
    model: Model
    checkpoint: str
    gpus_per_node: int
    role: str = ""
    """prefill or decode for a pool of two; empty for a deployment that does both."""
    note: str = ""

    @property
    def is_mixture(self) -> bool:
        """True where the model has routed experts."""
        from engine.launch.serving_engines.model_names import has_experts

        return has_experts(self.model)


@dataclass(frozen=True)
class ServerCommand:
    """Server of one instance: its command line and the files that the command names."""

    program: tuple[str, ...]
    """Words up to the model, such as `vllm serve`."""
    flags: Mapping[str, Any]
    """Values by flag with its dashes; True for a flag without a value."""
    gpus: int
    """GPUs of the instance."""
    copies: int
    """Instances."""
    files: tuple[LaunchFile, ...] = ()
    yaml: Mapping[str, Any] = field(default_factory=dict)
    """Contents of the engine's own YAML, where it has one."""
    unsaid: Mapping[str, str] = field(default_factory=dict)
    """Reason by field that the engine cannot say."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class WrittenDeployment(Written):
    """A complete configuration that starts a deployment."""

    unsaid: tuple[str, ...] = ()
    """Fields of the deployment that the configuration does not say; `not_expressible` has the reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingEngine:
    """A serving engine."""

    name: str
    title: str
    aliases: tuple[str, ...]
    version: str
    source: str
    snapshot: str
    """Arguments of its command line, a name for `snapshot_of`."""
    terms: Mapping[str, str]
    """Flags that say each field of a deployment, as a person reads them."""
    read: Callable[[EngineFlags, Mapping[str, Any]], EngineInstance]
    """Return the instance of flags and of the engine's own YAML. Raises `LaunchError` for an impossible value."""
    write: Callable[[DeploymentOrder], ServerCommand]
    """Return the server of an instance. Raises `UnsayableDeploymentError` where the engine has no words for it."""
