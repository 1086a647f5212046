"""The physical variant: every plan by the calibrated cost model, with its bubble, memory and networks.

A plan's degrees become executions of the model of the library that the card names, on its system: every microbatch and,
where the plan's name leaves it open, every kind of recomputation that the card allows; the fastest that fits the memory
counts. What the cost model does not have, the optimizer on the host, is the artifact's term with the card's own
parameters: copies over PCIe, and CPU threads. Nothing is fitted but one factor on all time of GPUs and networks, the
card's slowdown, for the software that ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.planners.contract import PlanError
from engine.planners.elastic.cards import ModelCard
from engine.planners.elastic.enumeration import NO_ZERO, PlanTable
from engine.planners.elastic.performance.figures import PlanFigures
from engine.planners.elastic.performance.fitted import IterationTerms
from engine.planners.elastic.plan_names import OFFLOAD, ZERO_DP
from engine.scenarios.dispatch import evaluate
from hardware import System, limit_nodes, system_of
from models import Model, model_of
from models import edited as edited_model

__all__ = ["PhysicalVariant"]

MICROBATCH: Final = 8
"""The largest microbatch that is tried [samples]; powers of two up to it. Source: stated by us."""


@dataclass(frozen=True)
class PhysicalVariant:
    """The calibrated cost model as a variant of the performance model.

    `recompute`, `microbatches`, `slowdown`, `model` and `system` replace the card's values: kinds of recomputation that
    plans with degrees may choose from, microbatches of their pipelines, the factor on all time of GPUs and networks,
    the model and the system of the library. `overlap`: gradient exchange hides behind the backward pass.
    """

    recompute: tuple[str, ...] | None = None
    microbatches: int | None = None
    slowdown: float | None = None
    model: str | None = None
    system: str | None = None
    overlap: bool = False
    datatype: str = "bfloat16"
    name: str = "physical"
    title: str = "Calibrated cost model"
    restricted: bool = False

    def node_size(self, card: ModelCard) -> int | None:
        """Returns the GPUs that the innermost network of the card's system joins.

        Args:
            card: names a system.
        """
        return self._system(card).node_size

    def figures(self, card: ModelCard, plans: PlanTable) -> PlanFigures:
        """Returns iterations, memory and choices by the calibrated cost model.

        Args:
            card: names a model of the library and a system.
            plans: under any limits.

        Raises `engine.planners.contract.PlanError` where the card names no model or system.
        """
        model, system = self._model(card), self._system(card)
        rows = _ExecutionRows.of(card, plans, self)
        reasons = list(plans.reasons)
        cells: list[pd.DataFrame] = []
        wide = system.node_size
        for (domain, bandwidth), at in _group_by_system(plans, rows, wide):
            if domain > wide:
                for row in at:
                    reasons[rows.plan[row]] = reasons[rows.plan[row]] or (
                        f"a node of {domain} GPUs is larger than the {wide} that {system.name} joins"
                    )
                continue
            cells.append(
                evaluate(model, limit_nodes(system, domain, bandwidth), rows.executions(at, self)).assign(
                    row=at, text=lambda found: found["reason_text"]
                )
            )
        found = pd.concat(cells).sort_values("row") if cells else pd.DataFrame()
        return _choose_fastest(
            card, plans, rows, found, reasons, card.slowdown if self.slowdown is None else self.slowdown
        )

    def _model(self, card: ModelCard) -> Model:
        name = self.model or card.library_model
        if not name:
            raise PlanError(
                f"The card {card.name} names no model of the library, which the variant physical needs: give it "
                "library_model, such as llama-2-7B."
            )
        return _model_of(name, card.sequence)

    def _system(self, card: ModelCard) -> System:
        name = self.system or card.system
        if not name:
            raise PlanError(
                f"The card {card.name} names no system, which the variant physical needs: give it system, such as "
                "a800_80g_sxm."
            )
        return system_of(name)


@lru_cache(maxsize=32)
def _model_of(name: str, sequence: int) -> Model:
    """Return the model of the library with samples of `sequence` tokens."""
    model = model_of(name)
    return model if model.seq_size == sequence else edited_model(model, {"seq_size": sequence})


def _group_by_system(plans: PlanTable, rows: _ExecutionRows, wide: int) -> list[tuple[tuple[int, float], Ints]]:
    """Rows of executions that share a system: GPUs of a node, bandwidth between nodes. Of unequal nodes the smallest
    counts; a job on one node has the system's own."""
    keys = [
        (min(each.nodes) if len(each.nodes) > 1 else max(wide, each.nodes[0]), each.bandwidth) for each in plans.limits
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    group = np.array([numbers[key] for key in keys], np.int64)[plans.limit[rows.plan]]
    return [(key, np.flatnonzero(group == number)) for key, number in numbers.items()]


@dataclass(frozen=True)
class _ExecutionRows:
    """Executions that represent plans, several for each: `plan` is whose, the least demanding one of a plan last."""

    card: ModelCard
    plans: PlanTable
    plan: Ints
    microbatch: Ints
    recompute: Sequence[str]

    @classmethod
    def of(cls, card: ModelCard, plans: PlanTable, variant: PhysicalVariant) -> _ExecutionRows:
        recompute = card.recompute if variant.recompute is None else variant.recompute
        count = card.microbatches if variant.microbatches is None else variant.microbatches
        sizes = [2**power for power in range(MICROBATCH.bit_length() - 1, -1, -1)]
        rows: list[tuple[int, int, str]] = []
        for at, name in enumerate(plans.names):
            if plans.reasons[at]:
                continue
            share = card.global_batch // int(plans.dp[at])
            tried = sizes if name.zero is not None or count is None else [max(share // count, 1)]
            kinds = recompute if name.zero is None else ("full" if name.recompute else "none",)
            rows += [(at, size, kind) for kind in kinds for size in tried if share % size == 0]
        return cls(
            card,
            plans,
            np.array([row[0] for row in rows], np.int64),
            np.array([row[1] for row in rows], np.int64),
            [row[2] for row in rows],
        )

    def executions(self, at: Ints, variant: PhysicalVariant) -> pd.DataFrame:
        """The fields of the rows at these positions, as executions of the cost model."""
        plan = self.plan[at]
        zero, dp = self.plans.zero[plan], self.plans.dp[plan]
        sharded = np.isin(zero, (ZERO_DP, OFFLOAD)) & (dp > 1)
        # Plain, ZeRO-DP and ZeRO-Offload plans take all GPUs as replicas; only the others have degrees.
        tensor = np.where(zero == NO_ZERO, self.plans.tp[plan], 1)
        return pd.DataFrame(
            {
                "num_procs": self.plans.gpus[plan],
                "tensor_par": tensor,
                "pipeline_par": np.where(zero == NO_ZERO, self.plans.pp[plan], 1),
                "data_par": dp,
                "tensor_par_net": 0,
                "pipeline_par_net": 0,
                "data_par_net": 0,
                "batch_size": self.card.global_batch,
                "microbatch_size": self.microbatch[at],
                "datatype": variant.datatype,
                "fused_activation": True,
                "attention_type": "multihead",
                "activation_recompute": [self.recompute[row] for row in at],
                "pipeline_interleaving": 1,
                "optimizer_sharding": sharded,
                "tensor_par_comm_type": "ar",
                "tensor_par_overlap": "none",
                "seq_par_ag_redo": False,
                "data_par_overlap": variant.overlap & (dp > 1),
                "weight_offload": False,
                "activations_offload": False,
                "optimizer_offload": zero == OFFLOAD,
                "training": True,
                "zero_stage": np.where(sharded, 2, 0),
            }
        )


def _choose_fastest(
    card: ModelCard, plans: PlanTable, rows: _ExecutionRows, found: pd.DataFrame, reasons: list[str], slowdown: float
) -> PlanFigures:
    """Returns the fastest execution of every plan."""
    count = len(plans)
    parts = {name: np.full(count, np.nan) for name in IterationTerms.__dataclass_fields__}
    memory, choices = np.full(count, np.nan), [""] * count
    if len(found):
        terms = _iteration_terms(card, plans, rows.plan[found["row"].to_numpy(np.int64)], found, slowdown)
        runs = (found["status"] == "ok").to_numpy()
        total = np.where(runs, terms.iteration, np.inf)
        plan = rows.plan[found["row"].to_numpy(np.int64)]
        order = np.lexsort((np.arange(len(plan)), total, plan))
        # Sorted by plan and time: the first row of each plan is its fastest execution.
        firsts = order[np.r_[True, plan[order][1:] != plan[order][:-1]]]
        lasts = np.r_[np.flatnonzero(plan[1:] != plan[:-1]), len(plan) - 1]
        told = dict(zip(plan[lasts].tolist(), found["text"].to_numpy()[lasts], strict=True))
        for at in firsts:
            mine = int(plan[at])
            if not np.isfinite(total[at]):
                reasons[mine] = reasons[mine] or _as_clause(str(told[mine]))
                continue
            for name, values in parts.items():
                values[mine] = getattr(terms, name)[at]
            row = found["row"].to_numpy()[at]
            memory[mine] = found["proc_mem_tier1_cap_req"].to_numpy(np.float64)[at]
            choices[mine] = f"microbatch {rows.microbatch[row]}, recompute {rows.recompute[row]}"
    made = IterationTerms(**parts)
    return PlanFigures(made, made.iteration, tuple(reasons), memory, tuple(choices))


def _iteration_terms(
    card: ModelCard, plans: PlanTable, plan: Ints, found: pd.DataFrame, slowdown: float
) -> IterationTerms:
    """Returns the parts of the iteration of executions [ms]."""

    def ms(*names: str) -> Floats:
        return np.asarray(1e3 * slowdown * found[list(names)].to_numpy(np.float64).sum(axis=1), np.float64)

    offloaded = plans.zero[plan] == OFFLOAD
    gpus = plans.gpus[plan]
    # The artifact's term for ZeRO-Offload: 4 bytes per parameter of a GPU's share over PCIe.
    copy = np.where(offloaded, 4.0 * card.parameters_mi / gpus / card.environment.pcie, 0.0)
    on_host = card.performance.k_os_offload * card.parameters_mi / (gpus * plans.cpu_threads[plan])
    return IterationTerms(
        forward=ms("fw_time", "recompute_time", "recomm_exposed_time"),
        backward=ms("bw_time"),
        synchronisation=ms("dp_comm_exposed_time"),
        tensor=ms("tp_comm_exposed_time"),
        pipeline=ms("bubble_time", "pp_comm_exposed_time"),
        to_host=copy,
        optimizer=np.where(offloaded, on_host, ms("optim_step_time")),
        to_gpu=copy,
        constant=ms("overhead_time"),
    )


def _as_clause(sentence: str) -> str:
    """Returns a sentence as part of another."""
    text = sentence.rstrip(".")
    return text[:1].lower() + text[1:] if text else "the cost model knows no such execution"
