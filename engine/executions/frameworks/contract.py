"""Contract of a framework's rules: which executions of a space it runs as they are.

A framework runs an execution if its configuration can be written, and says the execution's own value for every field
that configurations decide (see `engine.launch`). Rules come in two grains, as spaces do: rules of points, which read
all fields outside a mode, and rules of modes, which see of a point only the flags of `PointFlags`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from engine.columns import by_name
from engine.executions.arrays import Flags, Ints, distinct
from models import Model
from models.layers import LaunchWords

__all__ = [
    "COMBINED",
    "PLAIN_SCHEDULES",
    "POINT_FIELDS",
    "FrameworkRules",
    "LaunchSubject",
    "PointFlags",
    "StageBlocks",
    "flags_of",
    "is_word",
    "microbatches_of",
    "refusals_of",
    "stage_sizes",
]

StageBlocks = Callable[[int, int, int], tuple[int, ...]]
"""Returns the blocks of every stage of the model for a pipeline degree, chunks of each rank and the position of a stage
layout [stages of the model]."""

POINT_FIELDS = (
    "tensor_par",
    "pipeline_par",
    "data_par",
    "context_par",
    "expert_par",
    "expert_tensor_par",
    "pipeline_interleaving",
    "schedule",
    "stage_layout",
    "batch_size",
    "microbatch_size",
)
"""Fields that rules of points read; words as positions."""

COMBINED = by_name("schedule").choices.index("combined_1f1b")
PLAIN_SCHEDULES = tuple(by_name("schedule").choices.index(word) for word in ("1f1b", "interleaved"))


class PointFlags(NamedTuple):
    """Flags of points that rules of modes read, each [points]."""

    tensor: Flags
    """Tensor parallelism."""
    pipeline: Flags
    context: Flags
    replicas: Flags
    """Several ranks hold the same weights."""
    spread: Flags
    """Experts are spread over ranks."""
    chunked: Flags
    """Stages have several chunks."""
    combined: Flags
    """The schedule is combined 1F1B."""
    several_layers: Flags
    """The fullest chunk has more than one layer."""
    tokens_undivided: Flags
    """Tensor ranks, with two parts for each context rank, do not divide the tokens of a microbatch."""
    beyond_shard: Flags
    """Expert ranks are taken from replicas, too."""
    only_experts: Flags
    """All replicas are expert ranks."""


@dataclass(frozen=True, eq=False)
class LaunchSubject:
    """Model of a space, as rules see it."""

    model: Model
    datatype: str
    stage_blocks: StageBlocks

    @cached_property
    def has_pattern(self) -> bool:
        """True for models with a pattern of unlike layers."""
        return self.model.layers is not None

    @cached_property
    def layers(self) -> int:
        """Layers of the model; blocks of a pattern."""
        pattern = self.model.layers
        return pattern.layers if pattern is not None else self.model.architecture_or_assumed().layers

    @cached_property
    def experts(self) -> int:
        """Routed experts of a layer; of the first mixture of a pattern, 0 without experts."""
        if self.model.layers is None:
            found = self.model.architecture_or_assumed().experts
            return 0 if found is None else found.routed
        routings = (layer.routing() for block in self.model.layers.blocks for layer in block.layers)
        return next((each.routed for each in routings if each is not None), 0)

    @cached_property
    def heads(self) -> tuple[int, int]:
        """Heads of attention, and heads of keys and values: all for latent attention of a model without a pattern; 0
        without attention."""
        if self.model.layers is None:
            a = self.model.architecture_or_assumed()
            return a.heads, a.heads if a.latent_attention is not None else a.kv_heads
        shapes = (layer.softmax() for block in self.model.layers.blocks for layer in block.layers)
        return next(((each.heads, each.kv_heads) for each in shapes if each is not None), (0, 0))

    @cached_property
    def is_latent(self) -> bool:
        """True if attention is latent, in a model without a pattern."""
        return self.model.layers is None and self.model.architecture_or_assumed().latent_attention is not None

    @cached_property
    def has_tied_embeddings(self) -> bool:
        """True if the embedding is the head, too."""
        pattern = self.model.layers
        return bool(
            pattern.tied_embeddings if pattern is not None else self.model.architecture_or_assumed().tied_embeddings
        )

    @cached_property
    def trained_predictions(self) -> int:
        """Layers for multi-token prediction that are trained."""
        return 0 if self.has_pattern else self.model.architecture_or_assumed().trained_prediction_layers

    @cached_property
    def leading_dense_layers(self) -> int:
        """Layers without experts before the first with experts, if all later ones have experts; else 0."""
        if self.model.layers is not None:
            return 0
        flags = [bool(each) for each in self.model.architecture_or_assumed().expert_layers]
        first = flags.index(True) if True in flags else 0
        return first if all(flags[first:]) else 0

    def words_of(self, framework: str) -> tuple[LaunchWords, ...]:
        """Return a framework's words for each layer of a pattern; none for other models.

        Args:
            framework: name of the framework.
        """
        pattern = self.model.layers
        if pattern is None:
            return ()
        return tuple(
            layer.launch_words(framework, pattern.hidden) for block in pattern.blocks for layer in block.layers
        )

    def arguments_of(self, framework: str) -> dict[str, Any]:
        """Return a framework's arguments for the layers of a pattern, of unlike ones the first.

        Args:
            framework: name of the framework.
        """
        found: dict[str, Any] = {}
        for words in self.words_of(framework):
            for argument, value in words.arguments.items():
                if value is not None:
                    found.setdefault(argument, value)
        return found


PointRules = Callable[[Mapping[str, Ints], LaunchSubject], dict[str, Flags]]
ModeRules = Callable[[Mapping[str, Any], PointFlags, LaunchSubject], dict[str, Flags]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRules:
    """Executions that a framework does not run."""

    name: str
    """Word for it in commands and links."""
    title: str
    """Name on screen."""
    points: PointRules
    """Returns which points the framework does not run [points], by the property that it lacks, such as "a pipeline"."""
    modes: ModeRules
    """Returns which modes the framework does not run at points, broadcast, by the property that it lacks."""
    elsewhere: Mapping[str, str]
    """Fields that no configuration decides, with what does. Every value of them counts as run."""


def is_word(fields: Mapping[str, Any], name: str, *words: str) -> Flags:
    """Return where a field has one of these words.

    Args:
        fields: fields by name, words as positions.
        name: name of the field.
        words: of its choices.
    """
    found: Flags = np.isin(fields[name], [by_name(name).choices.index(word) for word in words])
    return found


def microbatches_of(points: Mapping[str, Ints]) -> Ints:
    """Return how many microbatches a replica works on in a step [points].

    Args:
        points: fields by name [points].
    """
    found: Ints = points["batch_size"] // np.maximum(points["data_par"] * points["microbatch_size"], 1)
    return found


def stage_sizes(points: Mapping[str, Ints], subject: LaunchSubject) -> tuple[Ints, Ints, Ints]:
    """Return the blocks of the fullest and the emptiest stage of the model, and of the emptiest between its ends, each
    [points]; without a pipeline all layers.

    Args:
        points: fields by name [points].
        subject: the model.
    """
    keys = [points[name] for name in ("pipeline_par", "pipeline_interleaving", "stage_layout")]
    first, which = distinct(*keys)
    sizes = []
    for row in first.tolist():
        pipeline, chunks, layout = (int(key[row]) for key in keys)
        blocks = (subject.layers,) if pipeline == 1 else subject.stage_blocks(pipeline, chunks, layout)
        sizes.append((max(blocks), min(blocks), min(blocks[1:-1], default=1)))
    found = np.array(sizes, np.int64).reshape(-1, 3)[which]
    return found[:, 0], found[:, 1], found[:, 2]


def flags_of(points: Mapping[str, Ints], subject: LaunchSubject) -> PointFlags:
    """Return what rules of modes see of points.

    Args:
        points: fields by name [points].
        subject: the model.
    """
    tensor, context, data = points["tensor_par"], points["context_par"], points["data_par"]
    pipeline, chunks, expert = points["pipeline_par"], points["pipeline_interleaving"], points["expert_par"]
    halves = np.where(context > 1, 2 * context, 1)
    return PointFlags(
        tensor=tensor > 1,
        pipeline=pipeline > 1,
        context=context > 1,
        replicas=data * context > 1,
        spread=(expert > 1) & (subject.experts > 0),
        chunked=chunks > 1,
        combined=points["schedule"] == COMBINED,
        several_layers=pipeline * chunks < subject.layers,
        tokens_undivided=points["microbatch_size"] * subject.model.seq_size % (tensor * halves) != 0,
        beyond_shard=context * tensor % expert != 0,
        only_experts=data == expert,
    )


def refusals_of(rules: FrameworkRules, fields: Mapping[str, Any], subject: LaunchSubject) -> dict[str, Flags]:
    """Return which executions a framework does not run [rows], by the property that it lacks.

    Args:
        rules: of the framework.
        fields: all fields by name [rows], words as positions.
        subject: the model.
    """
    points = {name: np.asarray(fields[name], np.int64) for name in POINT_FIELDS}
    return {**rules.points(points, subject), **rules.modes(fields, flags_of(points, subject), subject)}
