"""Space of the calibrated cost model: the fields that it tries beyond Calculon's, and the ones without an effect.

Beyond the 23 fields it tries context and expert parallelism, ZeRO stages and kinds of recomputation. `COVERED` lists,
field by field, the values tried without limits and the ones that limits add. It tries no two executions with equal
figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.columns import ALL_FIELDS, by_name, called
from engine.columns.stage_layouts import EVEN
from engine.cost_models.calibrated.case_building import model_shapes
from engine.cost_models.calibrated.fields import (
    DATATYPES,
    FULLY_SHARDED,
    NOT_READ,
    layer_rules,
    tensor_rules,
)
from engine.cost_models.calibrated.layout_choice import layouts_tried
from engine.cost_models.calibrated.modes import (
    FIELDS_OF_A_MODE,
    FURTHER_DEGREES,
    PIPELINE,
    REPLICAS,
    TENSOR,
    list_modes,
)
from engine.cost_models.calibrated.physics.communication.networks import farthest
from engine.cost_models.calibrated.physics.parameters import parameters, parameters_of
from engine.cost_models.calibrated.physics.pipeline.layouts import blocks_of_chunks, pattern_of, work_of
from engine.cost_models.calibrated.physics.pipeline.schedules import (
    COMBINED,
    INTERLEAVED,
    ONE_F_ONE_B,
    plain_schedule,
    refusals,
)
from engine.cost_models.calibrated.placement import networks_of
from engine.cost_models.calibrated.systems import fastest_attention
from engine.executions.arrays import Ints
from engine.executions.frameworks.contract import LaunchSubject
from engine.executions.frameworks.registry import FRAMEWORK_RULES
from engine.executions.limits import FRAMEWORK, LimitError, permits
from engine.executions.rules import tokens_undivided
from engine.space.framework_cells import cells_of_framework
from engine.space.space import MOST_CELLS, Cell, Modes, Space, divisors
from hardware import Calibration, System
from models import Model, datatypes

__all__ = ["COVERED", "CalibratedSpace"]


FEWEST_TOKENS = 4096
"""Fewest tokens of a sequence on a context-parallel rank, unless a limit allows fewer. Source: stated by us."""

COVERED: dict[str, str] = {
    "tensor_par": "divisors of the processors that divide the attention heads and fit the heads of keys and values",
    "pipeline_par": "divisors up to the number of blocks",
    "context_par": f"divisors that leave every rank {FEWEST_TOKENS:,} tokens of a sequence; others with a limit",
    "expert_par": "divisors of the experts, where there are any",
    "expert_tensor_par": "1 and tensor_par, where there are experts",
    "pipeline_interleaving": "numbers of chunks that divide a stage evenly, or that a stage layout has",
    "stage_layout": "even, where blocks that divide neither by themselves nor with embedding and loss leave one more "
    "for the last stages before the end; embedding or loss counted, and balanced, also with 2 and 4 chunks where even "
    "has none, where that leaves the busiest stage less to do; others with a limit",
    "schedule": "1F1B, interleaved where stages have several chunks, and Megatron's combined 1F1B where experts are "
    "spread; others with a limit",
    "microbatch_size": "divisors of a replica's batch",
    "zero_stage": "0, 1, 3, and 2 without a pipeline; 3 always with its gathers overlapped",
    "activation_recompute": "none, full, and selective of norms and activation functions or of every second block; "
    "other kinds, and sets of modules, with a limit on selective_recompute; of attention where its kernel is unfused",
    "recompute_blocks": "all; numbers of each chunk with a limit",
    "tensor_par_comm_type": "all-reduce, with messages split over the group where there is a pipeline, and sequence "
    "parallelism",
    "tensor_par_overlap": "none and ring; pipe makes no difference",
    "attention_kernel": "the fastest for the generation; others with a limit",
    "launch": "fused kernels; others with a limit",
    "gradient_datatype": "float32; others with a limit",
    "optimizer_datatype": "float32; others with a limit",
    "fp8_param_gather": "off; on with a limit, for 8-bit datatypes",
    "expert_overlap": "off; on with a limit",
    "token_dispatcher": "all-to-all; others with a limit",
    "dispatch_datatype": "bfloat16; float8 with a limit",
    "expert_imbalance": "100 %; others with a limit",
    "context_par_comm": "p2p; others with a limit",
    "pipeline_overlap": "off; on with a limit",
    "tensor_par_net": "as ranks are placed: tensor, context, data, pipeline, innermost first",
    "pipeline_par_net": "as ranks are placed",
    "data_par_net": "as ranks are placed; gradients are exchanged over context parallel ranks, too",
    "fused_activation": "on",
    "seq_par_ag_redo": "off; gathers are always repeated",
    "training": "on; a limit off gives forward passes alone",
}
"""Values tried of each field without limits; other fields are as in Calculon's space."""

OFFERED = (ONE_F_ONE_B, INTERLEAVED, COMBINED)
"""Schedules tried without a limit: the schedules of Megatron-LM, whose software facts are the defaults of
executions."""


class CalibratedSpace(Space):
    """All executions of the calibrated cost model; see `engine.space.space.Space` for arguments and errors, `COVERED`
    for the values tried."""

    cost_model = "calibrated"
    mode_fields = FIELDS_OF_A_MODE
    datatypes = DATATYPES

    def __init__(
        self,
        model: Model,
        system: System,
        *,
        num_procs: int,
        max_batch_size: int,
        datatype: str,
        limits: Mapping[str, Any] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.parameters = parameters() if calibration is None else parameters_of(calibration)
        super().__init__(
            model, system, num_procs=num_procs, max_batch_size=max_batch_size, datatype=datatype, limits=limits
        )

    @property
    def trains(self) -> bool:
        """Return whether the executions are training steps; forward passes alone only where a limit asks for those."""
        return bool(permits(self.limits, "training")(True))

    @property
    def connected(self) -> bool:
        """Return whether the networks of the system reach all processors."""
        return self.num_procs <= farthest(self.system)

    @property
    def num_blocks(self) -> int:
        """Blocks of the model."""
        return int(model_shapes(self.model).num_blocks)

    def mode_kind(self, cell: Cell) -> int:
        """Returns which of the mode lists a cell uses: by tensor parallelism, pipeline and replicas.

        Args:
            cell: a cell of the space.
        """
        return cell.kind if cell.mode_list < 0 else cell.mode_list

    def _mode_lists(self) -> tuple[Modes, ...]:
        return tuple(self._modes_of(kind) for kind in range(8))

    def _modes_of(self, kind: int) -> Modes:
        offload = (True, False) if self.system.mem2.capacity_gib > 0 else (False,)
        experts = bool(model_shapes(self.model).experts > 0)
        default: dict[str, tuple[Any, ...]] = {name: (by_name(name).default,) for name in FIELDS_OF_A_MODE} | {
            "activation_recompute": by_name("activation_recompute").choices,
            "optimizer_sharding": (True, False),
            "tensor_par_comm_type": by_name("tensor_par_comm_type").choices,
            "seq_par_ag_redo": (False,),
            "data_par_overlap": (True, False),
            "tensor_par_overlap": ("none", "ring"),
            "weight_offload": (True, False),
            "activations_offload": (True, False),
            "optimizer_offload": (True, False),
            "zero_stage": by_name("zero_stage").numbers,
            "selective_recompute": ("attention", "modules", "half"),
            "attention_kernel": (fastest_attention(self.system),),
        }
        values = []
        for name in FIELDS_OF_A_MODE:
            if by_name(name).dtype == "int64":
                allowed = permits(self.limits, name)
                offered = [value for value in self._offered_numbers(name, default[name]) if allowed(value)]
                if name == "zero_stage" and not self.trains:  # only sharded weights are left of the stages
                    offered = [value for value in offered if value in (0, FULLY_SHARDED)]
                values.append(tuple(offered))
            else:
                chosen = self._telling(name, self._values(name, default[name]))
                # Off before on, so that of equal executions the one that does without comes first.
                values.append(tuple(sorted(chosen)) if by_name(name).dtype == "bool" else chosen)
        return list_modes(tuple(values), offload, kind, experts)

    def _offered_numbers(self, name: str, default: tuple[int, ...]) -> Sequence[int]:
        """Return the numbers of a mode field that a limit chooses from: the register's, and all that it lists.

        Args:
            name: of a field of whole numbers.
            default: values without a limit.
        """
        limit = self.limits.get(name)
        if limit is None:
            return default
        if name == "recompute_blocks":
            return range(self.num_blocks + 1)
        listed = () if isinstance(limit, Mapping) else limit
        return sorted({*by_name(name).numbers, *listed})

    def _telling(self, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the allowed values that the model can have and that give different figures."""
        if name == "training":
            return (self.trains,)
        if name == "activations_offload" and not self.trains:  # nothing is kept for a backward pass
            return tuple(value for value in values if not value)
        if name == "tensor_par_overlap" and "ring" in values:
            return tuple(value for value in values if value != "pipe")
        if name == "fp8_param_gather":
            return tuple(value for value in values if not value or datatypes.named(self.datatype).bits == 8)
        if name == "attention_type":
            single = int(model_shapes(self.model).key_value_heads) == 1
            return tuple(value for value in values if value == "multihead" or single)[:1]
        if name in NOT_READ:
            plain = name == "fused_activation"
            return (plain,) if plain in values else values
        return values

    def _assignments(self, tensor: bool, pipeline: bool, data: bool) -> Ints:
        """Return a single empty assignment: networks follow from the degrees, see `further`."""
        return np.zeros((1, 3), np.int64)

    def _cells(self) -> tuple[Cell, ...]:
        shapes, limits, model = model_shapes(self.model), self.limits, self.model
        allow = {column.name: permits(limits, column.name) for column in ALL_FIELDS}
        placement_limited = any(f"{group}_net" in limits for group in ("tensor_par", "pipeline_par", "data_par"))
        cuts_by_degree = {degree: self._chunks_and_layouts(degree) for degree in divisors(self.num_procs)}
        # All batches are counted before the first cell is made: too many are refused at once, not after a minute.
        shapes_of_cells: list[tuple[int, int, int, int, list[tuple[int, int]], Sequence[int]]] = []
        tried = 0
        for tensor in divisors(self.num_procs):
            if any(tensor_rules(shapes, tensor).values()) or not allow["tensor_par"](tensor):
                continue
            if any(layer_rules(shapes, tensor, 1).values()):
                continue
            for pipeline in divisors(self.num_procs // tensor):
                if not cuts_by_degree[pipeline] or not allow["pipeline_par"](pipeline):
                    continue
                for context in self._contexts(self.num_procs // tensor // pipeline):
                    if any(layer_rules(shapes, tensor, context).values()):
                        continue
                    data = self.num_procs // tensor // pipeline // context
                    if data > self.max_batch_size or not allow["data_par"](data):
                        continue
                    degrees = {"tensor_par": tensor, "context_par": context, "data_par": data, "pipeline_par": pipeline}
                    if placement_limited:  # to place ranks takes as long as all else of a cell
                        placed = networks_of(self.system, {**degrees, "expert_par": 1, "expert_tensor_par": 1})
                        if not all(allow[name](int(net)) for name, net in placed.items()):
                            continue
                    ways, batches = self._expert_ways(tensor, context * data), self._batches(data)
                    tried += len(ways) * len(batches)
                    if tried > MOST_CELLS:
                        raise LimitError(
                            f"The limits allow over {MOST_CELLS:,} combinations of parallel degrees and "
                            f"{called('batch_size')}; give lists or narrower ranges."
                        )
                    shapes_of_cells.append((tensor, pipeline, context, data, ways, batches))
        cells: list[Cell] = []
        for tensor, pipeline, context, data, ways, batches in shapes_of_cells:
            kind = (tensor > 1) * TENSOR + (pipeline > 1) * PIPELINE + (data * context > 1) * REPLICAS
            if not len(self.modes[kind]):
                continue
            for batch in batches:
                microbatches = tuple(
                    size
                    for size in divisors(batch // data)
                    if allow["microbatch_size"](size) and not tokens_undivided(size, model.seq_size, tensor, context)
                )
                if not microbatches:
                    continue
                counts = tuple(batch // data // size for size in microbatches)
                for expert, split in ways:
                    chunks, schedules, cuts = self._schedules(cuts_by_degree[pipeline], pipeline, counts, expert > 1)
                    if chunks:
                        cells.append(
                            Cell(
                                tensor,
                                pipeline,
                                data,
                                batch,
                                chunks,
                                microbatches,
                                kind,
                                1,
                                context,
                                expert,
                                split,
                                schedules,
                                cuts,
                            )
                        )
        return self._of_framework(tuple(cells))

    def _of_framework(self, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        """Return the cells that the framework of the limits runs, with the lists of its modes; all for any."""
        name = self.limits.get(FRAMEWORK)
        if name is None:
            return cells
        shapes = model_shapes(self.model)
        pattern, work = pattern_of(shapes), work_of(shapes)
        subject = LaunchSubject(self.model, self.datatype, lambda *cut: blocks_of_chunks(pattern, *cut, work=work))
        found, self.modes = cells_of_framework(cells, self.modes, FRAMEWORK_RULES[name], subject)
        return found

    def _schedules(
        self, ways_to_cut: tuple[tuple[int, int], ...], pipeline: int, counts: tuple[int, ...], spread: bool
    ) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of chunks with their schedules and stage layouts that run with some of these numbers of
        microbatches; even stages first, and among them 1F1B and interleaved.

        spread: True with expert parallelism.
        """
        limit = self.limits.get("schedule")
        choices = by_name("schedule").choices
        wanted = OFFERED if limit is None else tuple(choices.index(word) for word in limit)
        if not self.trains:  # the others order backward passes
            wanted = tuple(each for each in wanted if each in (ONE_F_ONE_B, INTERLEAVED))
        return _with_schedules(ways_to_cut, pipeline, counts, spread, frozenset(wanted))

    def _chunks_and_layouts(self, pipeline: int) -> tuple[tuple[int, int], ...]:
        """Numbers of chunks at a pipeline degree and the stage layout of each; none where it does not fit."""
        allowed, limit = permits(self.limits, "pipeline_interleaving"), self.limits.get("stage_layout")
        shapes = model_shapes(self.model)
        pattern, work = pattern_of(shapes), work_of(shapes)
        wanted = None if limit is None else tuple(by_name("stage_layout").position(word) for word in limit)
        return tuple(pair for pair in layouts_tried(pattern, work, pipeline, wanted) if allowed(pair[0]))

    def _contexts(self, ranks: int) -> list[int]:
        """Context-parallel degrees among `ranks`."""
        sequence = self.model.seq_size
        limited = "context_par" in self.limits
        allowed = permits(self.limits, "context_par")
        return [
            degree
            for degree in divisors(ranks)
            if allowed(degree)
            and (degree == 1 or (sequence % (2 * degree) == 0 and (limited or sequence >= FEWEST_TOKENS * degree)))
        ]

    def _expert_ways(self, tensor: int, replicas: int) -> list[tuple[int, int]]:
        """(expert parallel, expert tensor parallel) degrees with `tensor` and replicas x context ranks."""
        experts = int(model_shapes(self.model).experts)
        allow = {name: permits(self.limits, name) for name in ("expert_par", "expert_tensor_par")}
        degrees: Sequence[int] = divisors(experts) if experts else (1,)
        splits = sorted({1, tensor}) if experts else [1]
        return [
            (expert, split)
            for expert in degrees
            for split in splits
            if tensor * replicas % (expert * split) == 0
            and allow["expert_par"](expert)
            and allow["expert_tensor_par"](split)
        ]

    def further(self, cell: Ints) -> dict[str, npt.NDArray[Any]]:
        """Returns degrees beyond the 23, and the networks as ranks are placed, each [rows].

        Args:
            cell: numbers of the cells in the space [rows].
        """
        degrees = {name: np.array([getattr(item, name) for item in self.cells], np.int64) for name in FURTHER_DEGREES}
        every = degrees | networks_of(self.system, {**self._columns, **degrees})
        return {name: values[cell] for name, values in every.items()}


@lru_cache(maxsize=4096)
def _with_schedules(
    ways_to_cut: tuple[tuple[int, int], ...],
    pipeline: int,
    counts: tuple[int, ...],
    spread: bool,
    wanted: frozenset[int],
) -> tuple[tuple[int, ...], ...]:
    """See `CalibratedSpace._schedules`."""
    found: list[tuple[int, int, int]] = []
    for cuts in ([pair for pair in ways_to_cut if (pair[1] == EVEN) is even] for even in (True, False)):
        schedules = plain_schedule([chunks for chunks, _ in cuts]).tolist()
        plain = [(chunks, schedule, layout) for (chunks, layout), schedule in zip(cuts, schedules, strict=True)]
        found += [each for each in plain if each[1] in wanted]
        for schedule in sorted(wanted - {ONE_F_ONE_B, INTERLEAVED}) if pipeline > 1 else ():
            if schedule == COMBINED and not spread:
                continue
            found += [
                (chunks, schedule, layout)
                for chunks, layout in cuts
                if _is_runnable(schedule, pipeline, counts, chunks)
            ]
    return tuple(zip(*found, strict=True)) if found else ((), (), ())


_FIRST_COUNTS: Final = 512
"""Numbers of microbatches below this are all computed at the first request, which takes no longer than one."""


def _is_runnable(schedule: int, pipeline: int, counts: tuple[int, ...], chunks: int) -> bool:
    """Return whether a schedule runs with any of these numbers of microbatches."""
    known = _known_to_run(schedule, pipeline, chunks)
    new = [count for count in counts if count not in known]
    if new:
        new = list({*new, *(() if known else range(1, _FIRST_COUNTS))})
        refused = np.zeros(len(new), bool)
        for broken in refusals(schedule, pipeline, np.array(new), chunks).values():
            refused |= broken
        known.update(zip(new, (~refused).tolist(), strict=True))
    return any(known[count] for count in counts)


@lru_cache(maxsize=512)
def _known_to_run(schedule: int, pipeline: int, chunks: int) -> dict[int, bool]:
    """Return the cached results of `_is_runnable` by number of microbatches; the cells of a space share them in many
    combinations."""
    return {}
