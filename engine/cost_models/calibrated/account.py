"""Account of an execution by the calibrated cost model: parts of the step, operations, networks, formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from engine.columns import ALL_FIELDS, by_name
from engine.columns.stage_layouts import EVEN, StageLayoutError, canonical
from engine.cost_models.account import (
    BlockAccount,
    ExecutionAccount,
    ExecutionCommunication,
    LinkTime,
    ModelStage,
    RankGroup,
    Roofs,
    StageHeld,
    StagePart,
    StepPart,
)
from engine.cost_models.calibrated.formulas import EXPRESSIONS, formula
from engine.cost_models.calibrated.operation_columns import OPERATION_COLUMNS
from engine.cost_models.calibrated.operation_table import case_of_execution
from engine.cost_models.calibrated.physics.communication.links import link_times
from engine.cost_models.calibrated.physics.communication.networks import networks_used, shared_by
from engine.cost_models.calibrated.physics.inputs import Case
from engine.cost_models.calibrated.physics.layers.operations import (
    BLOCKS,
    block_operations,
    blocks_of,
    limits,
    summarised,
)
from engine.cost_models.calibrated.physics.offload import RESERVE
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.chunks import (
    chunk_seconds,
    message_seconds,
    stage_bytes,
    stage_work,
)
from engine.cost_models.calibrated.physics.step import StepTimes, step_times
from engine.cost_models.chunk_times import microbatches_of
from engine.cost_models.formulas import Expression, Untold
from engine.executions.layer_splits import LayerSplitError
from hardware import System
from models import Model

__all__ = ["CalibratedAccount", "innermost_first"]

_TRAFFIC: Final = (
    ("TP", "tp", "tp_comm_exposed_time"),
    ("TP repeated", "recomm", "recomm_exposed_time"),
    ("CP", "cp", "cp_comm_exposed_time"),
    ("EP", "ep", "ep_comm_exposed_time"),
    ("PP", "pp", "pp_comm_exposed_time"),
    ("DP", "dp", "dp_comm_exposed_time"),
)
"""Kinds of communication, their names in `link_times`, and the statistic of their exposed time."""

_PARTS: Final = {
    "linear": ("Linear layers", "matrix products of all blocks, forward and backward", "gemm"),
    "attention": ("Attention", "scores and values, by the rate of the attention kernel", "attention"),
    "elementwise": ("Element-wise", "norms, activation functions, residuals: memory traffic", "elementwise"),
    "recompute": ("Recompute", "what the backward pass needs, computed again", "recompute"),
    "launch": ("Kernel launches", "what of the host's launching no computation hides", "launch"),
    "ends": ("Embedding and head", "vocabulary layers and loss, on the first and last stage", "head"),
    "tensor_exposed": ("TP communication", "exposed collectives of tensor parallelism, also repeated", "collectives"),
    "context_exposed": ("CP communication", "exposed ring of keys and values", "context_parallel"),
    "expert_exposed": ("EP communication", "exposed dispatch and return of tokens", "experts"),
    "gather_exposed": ("Weight gathers", "exposed gathers of sharded weights, block by block", "sharding"),
    "pipeline_exposed": ("PP communication", "messages between stages that stages wait for", "pipeline"),
    "bubble": ("Pipeline bubble", "filling and draining of the pipeline", "pipeline"),
    "data_exposed": ("DP communication", "exposed exchange of gradients", "sharding"),
    "tied": ("Tied embeddings", "exchange between first and last stage", "sharding"),
    "offload": ("Offload", "transfers to and from host memory that nothing hides", "offload"),
    "optimizer": ("Optimizer step", "update of the weights a GPU holds", "optimizer"),
    "straggler": ("Stragglers", "waiting for the slowest of many GPUs", "step"),
    "fixed": ("Host", "constant work of the host per step", "step"),
}
"""Parts of a step -> name, meaning, module of the physics with the formula and its source."""
_BESIDES: Final = ("data_exposed", "tied", "optimizer", "straggler", "fixed", "offload")
"""Parts of the step that are no work of stages and no messages between them."""
_PLAIN_BLOCKS: Final = (
    "dense blocks",
    "dense blocks with a window",
    "blocks with experts",
    "blocks with experts and a window",
)
"""Names of the kinds of blocks of a plain model, in the order of `physics.chunks.StageWork`."""
_OTHER_PARTS: Final = ("embedding", "head and loss", "prediction layers")
"""Names of the other parts of a stage, which follow them."""
_SHORTEST: Final = 1e-9
"""Parts that take less are rounding errors [s]."""


class CalibratedAccount(ExecutionAccount):
    """See `engine.cost_models.account.ExecutionAccount`."""

    expressions = EXPRESSIONS.keys()

    def __init__(self, model: Model, system: System, execution: Mapping[str, Any], p: Parameters, physics: str) -> None:
        """execution: fields and statistics. physics: version of the cost model and calibration in words."""
        self._model, self._system, self._row = model, system, execution
        self._parameters, self._physics = p, physics

    @cached_property
    def case(self) -> Case:
        """Return the inputs of the physics for the execution."""
        return case_of_execution(
            self._model, self._system, {column.name: self._row[column.name] for column in ALL_FIELDS}
        )

    @cached_property
    def step(self) -> Mapping[str, float]:
        """The parts of the step [s] by name of `StepTimes`, and `offload`; they add up to `step`."""
        times, row = step_times(self.case, self._parameters), self._row
        parts = {item.name: float(np.ravel(getattr(times, item.name))[0]) for item in fields(StepTimes)}
        offload = float(row["fw_offload_exposed_time"]) + float(row["bw_offload_exposed_time"])
        # Processors wait for the slowest with what offloading shows, too.
        straggler = float(row["overhead_time"]) - parts["fixed"]
        if row["weight_offload"] or row["activations_offload"] or row["optimizer_offload"]:
            # Gradients are exchanged meanwhile as well: there is more for the exchange to hide behind.
            data = float(row["dp_comm_exposed_time"]) - parts["gather_exposed"] - parts["tied"]
            parts["data_exposed"] = data if data > _SHORTEST else 0.0
        return parts | {"offload": offload, "straggler": straggler, "step": float(row["total_time"])}

    def parts(self) -> Sequence[StepPart]:
        """See `Account.parts`."""
        # What tensor parallelism sends again is communication here as it is among the statistics.
        again, times = float(self._row["recomm_exposed_time"]), dict(self.step)
        times["recompute"] -= again
        times["tensor_exposed"] += again
        found = [
            StepPart(name, times[key], what, module)
            for key, (name, what, module) in _PARTS.items()
            if times[key] > _SHORTEST
        ]
        return sorted(found, key=lambda part: -part.seconds)

    def besides_pipeline(self) -> Sequence[StepPart]:
        """See `Account.besides_pipeline`."""
        found = [
            StepPart(*_PARTS[key][:1], self.step[key], *_PARTS[key][1:])
            for key in _BESIDES
            if self.step[key] > _SHORTEST
        ]
        return sorted(found, key=lambda part: -part.seconds)

    def messages_in_step(self) -> float:
        """See `Account.messages_in_step`."""
        return self.step["pipeline_exposed"]

    def stage_shares(self) -> Sequence[float] | None:
        """See `Account.stage_shares`."""
        if int(self._row["pipeline_par"]) == 1:
            return None
        found = chunk_seconds(self.case, self._parameters)
        return [float(each) for each in found] if np.ptp(found) > 0 else None

    def model_stages(self, ranks: int, chunks: int, layout: str | None = None) -> Sequence[ModelStage]:
        """See `Account.model_stages`."""
        blocks = int(np.ravel(self.case.model.num_blocks)[0])
        try:
            word = canonical(layout if layout is not None else str(self._row["stage_layout"]))
        except StageLayoutError as problem:
            raise LayerSplitError(str(problem)) from None
        number = by_name("stage_layout").position(word)
        if number == EVEN and ranks * chunks > blocks:
            raise LayerSplitError(f"{blocks} blocks are too few for {ranks * chunks} stages of the model")
        work = stage_work(self.case, self._parameters, ranks, chunks, number)
        held, stages = stage_bytes(self.case, ranks, chunks, number), []
        names = _PLAIN_BLOCKS if self.case.model.pattern is None else blocks_of(self.case.model)
        for place, (forward, inputs, weights, pair) in enumerate(work.seconds.sum(axis=0).T.tolist()):
            each = zip(
                (*names, *_OTHER_PARTS), work.numbers[:, place], work.seconds[:, :3, place].sum(axis=1), strict=True
            )
            parts = tuple(StagePart(name, float(number), float(took)) for name, number, took in each if number)
            kept = StageHeld(*(float(each[place]) for each in held))
            kept = kept._replace(temporaries=kept.temporaries + RESERVE)
            stages.append(ModelStage(forward, inputs, weights, pair, parts, kept))
        return stages

    def message_seconds(self) -> float:
        """See `Account.message_seconds`."""
        return message_seconds(self.case, self._parameters)

    def communication(self) -> ExecutionCommunication:
        """See `Account.communication`."""
        groups = innermost_first(self._row, self._system)
        there = {group.name for group in groups}
        links = link_times(self.case, self._parameters)
        times = []
        for name, kind, exposed in _TRAFFIC:
            group = name.partition(" ")[0]
            both = float(np.ravel(links[kind])[0]), float(self._row[exposed])
            if max(both) > 0 and group in there:
                times.append(LinkTime(name, group, *both))
        return ExecutionCommunication(
            groups,
            times,
            "Ranks are placed innermost first: tensor, context, data, then pipeline. Each group uses as few networks "
            "as possible; unused GPUs of a network stay idle. A collective that spans tiers is split into an exchange "
            "on each.",
            "A whole bar is the time without overlap, on the slowest stage. DP includes gathers of sharded weights.",
        )

    def block(self) -> BlockAccount:
        """See `Account.block`."""
        most, number = limits(self.case, self._parameters), microbatches_of(self._row)
        kinds, fused = blocks_of(self.case.model), str(self._row["attention_kernel"]) != "unfused"
        return BlockAccount(
            title="Operations of one block",
            scope=f"on one GPU, for one of {number:,} microbatch{'es' * (number != 1)}",
            kinds={kind: BLOCKS.get(kind, kind) for kind in kinds},
            tables={kind: summarised(block_operations(self.case, self._parameters, kind), most) for kind in kinds},
            columns=OPERATION_COLUMNS,
            note="Without recomputation and without waiting for kernel launches; of communication, the exposed part. "
            "Formulas: `engine.cost_models.calibrated.physics`, in gemm, attention, elementwise, experts and "
            "collectives.",
            roofs=Roofs(most.peak, most.sustained, most.memory_peak, ("peak", "sustained")),
            roofs_scope="linear layers on one GPU",
            roofs_note="The fused attention core is not plotted: its scores stay on chip. Operations that only move "
            "data are not plotted either."
            if fused
            else "",
        )

    def formula(self, name: str) -> Expression | Untold:
        """See `Account.formula`."""
        return formula(name, self._row, self._model, self._system, self.step, self._physics)


def innermost_first(execution: Mapping[Any, Any], system: System) -> list[RankGroup]:
    """Returns the placement of ranks on the networks of a system, group by group.

    See `engine.cost_models.calibrated.physics.communication.networks`. Collectives and exchanges of tokens use every
    network that sets their ranks apart, rings of context parallel ranks and messages between stages the outermost of
    them only.

    Args:
        execution: its fields by name.
        system: whose networks.
    """
    tensor, context, data, stages, experts, beside = (
        int(execution[name])
        for name in (
            "tensor_par",
            "context_par",
            "data_par",
            "pipeline_par",
            "expert_par",
            "expert_tensor_par",
        )
    )
    procs = tensor * context * data * stages
    sizes = [np.asarray(float(network.size)) for network in system.networks]
    whole = [np.asarray(float(reach)) for reach in (tensor, tensor * context, experts * beside)]
    outermost = {name: (int(tier),) for name, tier in networks_used(system, execution).items()}

    def over(degree: int, stride: int) -> tuple[int, ...]:
        shared = [1.0, *map(float, shared_by(np.asarray(float(degree)), float(stride), sizes, whole))]
        return tuple(tier for tier, (inner, here) in enumerate(pairwise(shared)) if here > inner) or (0,)

    found = [
        RankGroup("TP", tensor, over(tensor, 1), tuple(range(tensor))),
        RankGroup("CP", context, outermost["context"], tuple(range(0, context * tensor, tensor))),
        # Context and data parallel ranks exchange gradients together.
        RankGroup("DP", data, over(data * context, tensor), tuple(range(0, data * tensor * context, tensor * context))),
        RankGroup("EP", experts, over(experts, beside), tuple(range(0, experts * beside, beside))),
    ]
    last = (procs // stages * (stages - 1),) if int(execution["pipeline_interleaving"]) > 1 and stages > 2 else ()
    onward = (0, procs // stages, *last) if stages > 1 else (0,)
    found.append(RankGroup("PP", stages, outermost["pipeline"], onward))
    return [each for each in found if each.degree > 1 or each.name in ("TP", "PP", "DP")]
