"""Account of one execution by a cost model: the derivation of its figures, in addition to the statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import pandas as pd

from engine.columns import Column
from engine.cost_models.formulas import Expression, Untold

__all__ = [
    "BlockAccount",
    "ExecutionAccount",
    "ExecutionCommunication",
    "LinkTime",
    "ModelStage",
    "RankGroup",
    "Roofs",
    "Shown",
    "StageHeld",
    "StagePart",
    "StepPart",
]


class StepPart(NamedTuple):
    """Part of the step: its name on screen, its time [s], its meaning, and the source of its formula."""

    name: str
    seconds: float
    what: str
    source: str


class RankGroup(NamedTuple):
    """One kind of parallelism of an execution: its degree, network tiers, and the GPUs that GPU 0 talks to in it.

    `name` is "TP", "CP", "EP", "PP" or "DP"; `tiers` are the networks of its exchange, innermost first.
    """

    name: str
    degree: int
    tiers: tuple[int, ...]
    partners: tuple[int, ...]

    @property
    def tier(self) -> int:
        """The outermost tier that it needs."""
        return self.tiers[-1]


class LinkTime(NamedTuple):
    """Time of one step on the links of a group, and the part of it that nothing hides [s]; `group` is the name of a
    `RankGroup`, `name` what people call the traffic."""

    name: str
    group: str
    link: float
    exposed: float


class ExecutionCommunication(NamedTuple):
    """Groups of communicating GPUs and their times; `placed` and `counted` are notes on the placement and on the
    times."""

    groups: Sequence[RankGroup]
    times: Sequence[LinkTime]
    placed: str
    counted: str = ""


class Roofs(NamedTuple):
    """Peak rates of two engines, such as the matrix and the vector unit [FLOP/s], the memory bandwidth [bytes/s], and
    the names of both rates."""

    matrix: float
    lower: float
    bandwidth: float
    names: tuple[str, str] = ("matrix", "vector")


class Shown(NamedTuple):
    """A column of a table of operations, the unit in which people read it, how large that is in the column's own unit,
    and the decimals that are worth printing."""

    column: Column
    unit: str
    size: float
    decimals: int = 0


class BlockAccount(NamedTuple):
    """Operations of one block, and the limits that bound them.

    Every table of `tables`, by kind of block (on-screen names: `kinds`), has the `columns`, and `engine` and for each
    of the stages fw, agrad and wgrad `{stage}_flops` [FLOP], `{stage}_mem_accessed` [bytes] and
    `{stage}_processing_time` [s].
    `title` and `scope` are shown above a table, `note` below it; `roofs_scope` names the device of `roofs`, explained
    by `roofs_note`.
    """

    title: str
    scope: str
    kinds: Mapping[str, str]
    tables: Mapping[str, pd.DataFrame]
    columns: Sequence[Shown]
    note: str
    roofs: Roofs
    roofs_scope: str
    roofs_note: str = ""


class StagePart(NamedTuple):
    """Part of a stage of the model: its name on screen (plural if there can be several), its number, and its time for
    one microbatch, forward and backward [s]."""

    name: str
    number: float
    seconds: float


class StageHeld(NamedTuple):
    """Memory of one stage of the model on a processor [bytes]: activations of one microbatch, weights with gradients,
    optimizer state, working memory of the current block, and logits with temporaries and reserved memory.

    `gradients` and `block_weights` are the parts of `weights` that can be offloaded; `resident` and `resident_kept` are
    the block weights and the activations of the two largest `blocks`, which then stay in the first memory tier.
    """

    activations: float
    weights: float
    optimizer: float
    working: float
    temporaries: float
    gradients: float = 0.0
    block_weights: float = 0.0
    resident: float = 0.0
    resident_kept: float = 0.0
    blocks: float = 0.0


class ModelStage(NamedTuple):
    """Stage of the model, one chunk of one rank: seconds of a microbatch forward, for gradients of inputs, for
    gradients of weights, and of an overlapped forward and backward [s], the parts of these times, and its memory (None
    if the cost model does not give it)."""

    forward: float
    input_gradient: float
    weight_gradient: float
    pair: float
    parts: tuple[StagePart, ...]
    held: StageHeld | None = None

    @property
    def seconds(self) -> float:
        """Seconds of a microbatch, forward and backward one after the other [s]."""
        return self.forward + self.input_gradient + self.weight_gradient


class ExecutionAccount:
    """Derivation of the figures of one execution. Empty by default."""

    expressions: Set[str] = frozenset()
    """The statistics that `formula` has an expression of."""

    def parts(self) -> Sequence[StepPart]:
        """Returns the parts of the step that take any time, finer than the statistics, the longest first; they add up.
        Empty where the statistics tell all parts."""
        return ()

    def communication(self) -> ExecutionCommunication | None:
        """Return the groups of communicating GPUs, or None if the cost model does not place ranks."""
        return None

    def block(self) -> BlockAccount | None:
        """Returns what one block does, or None where the cost model does not tell operations apart.

        Raises `engine.cost_models.contract.LayerError`.
        """
        return None

    def stage_shares(self) -> Sequence[float] | None:
        """Returns what every stage of the model takes for a microbatch, in the order in which a token passes them, as a
        share of a chunk of the stage whose times the statistics are; None where all take as much."""
        return None

    def besides_pipeline(self) -> Sequence[StepPart]:
        """Return the parts of the step outside the pipeline, longest first [s]: exchange of gradients, optimizer, ....
        Empty where the cost model does not say."""
        return ()

    def messages_in_step(self) -> float:
        """Return the time of messages between stages that the step adds to the time of stages [s]."""
        return 0.0

    def model_stages(self, ranks: int, chunks: int, layout: str | None = None) -> Sequence[ModelStage]:
        """Return the times of every stage of the model for other numbers of ranks and chunks, in the order in which a
        token passes them; empty if the cost model has no times by stage.

        Args:
            ranks: ranks of the pipeline.
            chunks: chunks of each rank.
            layout: how blocks are cut, in the words of the field `stage_layout`; the execution's own where None.

        Raises `engine.executions.layer_splits.LayerSplitError`, in words, where the model's blocks are not cut so.
        """
        return ()

    def message_seconds(self) -> float:
        """Returns the seconds of one message between neighbouring stages [s]; 0 where the cost model has none."""
        return 0.0

    def formula(self, name: str) -> Expression | Untold:
        """Return the derivation of a statistic."""
        return Untold("The cost model computes this figure as a whole.")
