"""The pipeline of an execution replayed with what every stage of the model takes, beside the cost model's closed form.

Closed forms are exact for stages that are alike. Where they are not, 1F1B and ZB-H1 take the longest path through any
stage; for the others the slowest stage waits for the mean of all (`cost_models.calibrated.physics.pipeline`), and a
replay says how far off that is. Of 300 random cuts each, with up to two blocks fewer at the ends of four everywhere,
closed forms are 0.0 % (1F1B), 0.2 % (ZB-H1), 0.7 % (ZB-V), 1.9 % (DualPipe), 1.5 % (DualPipeV), 1.8 % (interleaved) and
0.8 % (combined 1F1B) off on average, and 11 % at most; with one to five blocks anywhere 0.04, 0.2, 1.6, 3.4, 3.0, 3.0
and 2.3 %, and 16 % at most. They are high more often than low.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.cost_models.account import Account, ModelStage
from engine.cost_models.chunk_times import microbatches_of, tells_blocks_apart
from engine.simulate.folding import kept_microbatches
from engine.simulate.replay import replay, shape_of
from engine.simulate.schedules.contract import Rule
from engine.simulate.schedules.registry import rule

__all__ = ["StageReplay", "stage_replay", "stage_times"]

MOST_ACTIONS: Final = 60_000
"""Actions that are replayed; of longer schedules the steady state is taken from two shorter ones."""
_ONCE: Final = (
    "overhead_time", "dp_comm_exposed_time", "optim_step_time", "fw_offload_exposed_time", "bw_offload_exposed_time",
    "pp_comm_exposed_time",
)  # fmt: skip
"""Parts of a step that are no work of stages."""


@dataclass(frozen=True, slots=True)
class StageReplay:
    """All microbatches through the pipeline, without messages, offload and what comes once per step."""

    replayed: float
    """By the replay of every stage [s]."""
    stated: float
    """By the cost model's closed form [s]."""

    @property
    def apart(self) -> float:
        """The closed form over the replay, less 1."""
        return self.stated / self.replayed - 1.0


def stage_replay(execution: Mapping[Any, Any], account: Account) -> StageReplay | None:
    """Returns an execution's pipeline by replay and by closed form; None without a pipeline, and where the cost model
    does not tell stages apart or has a replay's figures anyway.

    Args:
        execution: its fields and statistics, feasible.
        account: what the cost model tells of it.
    """
    ranks, chunks = int(execution["pipeline_par"]), int(execution["pipeline_interleaving"])
    if ranks == 1 or tells_blocks_apart(execution) or not bool(execution["training"]):
        return None
    stages = account.model_stages(ranks, chunks)
    if not stages:
        return None
    known, microbatches = rule(str(execution.get("schedule") or "1f1b")), microbatches_of(execution)
    stated = float(execution["total_time"]) - sum(float(execution.get(name) or 0.0) for name in _ONCE)
    return StageReplay(_makespan(known, ranks, microbatches, chunks, stage_times(stages, pairs=known.pairs)), stated)


def stage_times(stages: Sequence[ModelStage], *, pairs: bool) -> dict[str, list[float]]:
    """Returns durations by stage of the model as `replay` takes them [s].

    Args:
        stages: in the order in which a token passes them.
        pairs: whether overlapped pairs are among them.
    """
    times = {
        "F": [stage.forward for stage in stages], "B": [stage.input_gradient for stage in stages],
        "W": [stage.weight_gradient for stage in stages],
    }  # fmt: skip
    return times | {"FB": [stage.pair for stage in stages]} if pairs else times


def _makespan(known: Rule, ranks: int, microbatches: int, chunks: int, times: Mapping[str, Any]) -> float:
    """Seconds of all microbatches [s]."""

    def of(number: int) -> float:
        return replay(known.name, stages=ranks, microbatches=number, chunks=chunks, times=times).makespan

    kept = kept_microbatches(known, shape_of(known, ranks, microbatches, chunks), MOST_ACTIONS)
    found = of(kept)
    if kept == microbatches:
        return found
    more = of(kept + 2 * ranks)
    return found + (microbatches - kept) * (more - found) / (2 * ranks)
