"""Contract of a framework of reinforcement learning: the run that it writes, and the run that it reads.

A run is one step of reinforcement learning as a question about post-training has it: settings by the question's own
paths, such as "group" or "rollout.memory_share", the layout of training as fields of an execution, and the replicas of
the rollout as fields of a deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.launch.contract import FileContents, LaunchInputs, LaunchOrder, Origin, Written

__all__ = [
    "LAYOUT_FIELDS",
    "REPLICA_FIELDS",
    "RUN_SETTINGS",
    "RunFramework",
    "RunOrder",
    "RunReading",
]

RUN_SETTINGS: Final[Mapping[str, str]] = {
    "model": "Model",
    "num_procs": "GPUs",
    "method": "Method",
    "prompts": "Prompts per step",
    "group": "Responses per prompt",
    "prompt_tokens": "Prompt length",
    "response.mean": "Mean response",
    "response.cap": "Longest response",
    "updates": "Updates per step",
    "reference": "Reference model",
    "old_log_probs": "Old log-probabilities",
    "steps": "Steps",
    "mode": "Mode",
    "staleness": "Staleness",
    "split": "Split of GPUs",
    "pack_to": "Pack length",
    "rollout.datatype": "Rollout datatype",
    "rollout.tensor_par": "Rollout tensor parallel",
    "rollout.memory_share": "Memory share",
    "rollout.max_sequences": "Requests at once",
    "synchronisation": "Weight synchronisation",
}
"""Settings of a run by their path in a `PostTrainingQuestion`, with their labels."""

LAYOUT_FIELDS: Final = (
    "tensor_par",
    "pipeline_par",
    "context_par",
    "expert_par",
    "expert_tensor_par",
    "pipeline_interleaving",
    "stage_layout",
    "microbatch_size",
    "zero_stage",
    "activation_recompute",
    "selective_recompute",
    "recompute_blocks",
    "optimizer_offload",
    "activations_offload",
    "tensor_par_comm_type",
    "data_par_overlap",
    "gradient_datatype",
    "optimizer_datatype",
    "tensor_par_overlap",
    "token_dispatcher",
    "expert_overlap",
    "context_par_comm",
)
"""Fields of the training execution that a launch file states, and to which a question is limited."""

REPLICA_FIELDS: Final = ("tensor_par", "pipeline_par", "expert_par", "replicas")
"""Fields of the rollout's deployment that a launch file states."""


@dataclass(frozen=True)
class RunOrder:
    """Run of reinforcement learning to write.

    `settings` has a value for every path of `RUN_SETTINGS`; None where none is asked for.
    """

    settings: Mapping[str, Any]
    replicas: Mapping[str, Any]
    layout: LaunchOrder
    checkpoint: str
    gpus_train: int
    gpus_rollout: int
    gpus_per_node: int
    note: str = ""
    replaced: tuple[str, ...] = ()
    """Fields of the execution that the framework does not run as they were planned, a sentence each."""
    duties: tuple[str, ...] = ()
    """Values that the user has to replace, a sentence each."""

    @property
    def is_colocated(self) -> bool:
        """True if rollout and training take turns on the same GPUs."""
        return bool(self.settings["mode"] == "colocated")

    @property
    def samples(self) -> int:
        """Responses of a step."""
        return int(self.settings["prompts"]) * int(self.settings["group"])

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt and response."""
        return int(self.settings["prompt_tokens"]) + int(self.settings["response.cap"])

    @property
    def pack_to(self) -> int:
        """Tokens of a pack."""
        return int(self.settings["pack_to"] or self.longest)

    def nodes_of(self, gpus: int) -> int:
        """Return the machines that hold some of the GPUs.

        Args:
            gpus: at most one machine, or whole machines.
        """
        return max(gpus // self.gpus_per_node, 1)


@dataclass(frozen=True)
class RunReading:
    """Run that a launch file describes. Unstated values are absent; nothing is invented."""

    framework: str
    title: str
    version: str
    settings: dict[str, Any]
    """Values by path of `RUN_SETTINGS`."""
    layout: dict[str, Any]
    """Fields of the training execution, `num_procs` being the GPUs that train."""
    replicas: dict[str, Any]
    """Fields of the rollout's deployment."""
    checkpoint: str = ""
    """Model, as the file names it."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Source of every setting, by path; of every field of the layout, as "training.NAME"."""
    not_modelled: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    refused: str = ""
    """Reason why the framework itself would not start; empty without one."""
    gpus_per_node: int | None = None

    @property
    def left(self) -> tuple[str, ...]:
        """Return the settings that other sources have to give, by path."""
        return tuple(path for path in RUN_SETTINGS if path not in self.settings and path in self.origins)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFramework:
    """A framework of reinforcement learning."""

    name: str
    title: str
    aliases: tuple[str, ...]
    version: str
    """Version whose options and defaults are known."""
    source: str
    limits: Mapping[str, Any]
    """Limits of training executions that it runs, by field; a plan for its launch file keeps to them."""
    replaced: Mapping[str, tuple[str, Any]]
    """Fields of an execution that it does not run as they are: the reason, and the value that is written instead of all
    that `limits` leaves out."""
    synchronisation: Mapping[str, str]
    """Way in which weights reach the rollout, by mode with two pools."""
    terms: Mapping[str, str]
    """Keys that state each setting, as a person reads them."""
    write: Callable[[RunOrder], Written]
    """Return the files. Raises `LaunchError` for a run that it would refuse."""
    find: Callable[[str, str, Mapping[str, str]], FileContents | None]
    """Return the contents of a file from its text, its name, and the texts of files beside it by name; None where it is
    no file of this framework."""
    read: Callable[[FileContents, LaunchInputs], RunReading]
    """Return the run of a file's contents. Raises `LaunchError` for an invalid value."""
