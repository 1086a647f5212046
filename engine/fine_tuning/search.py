"""Search of executions that fine-tune: the fastest of each method, and the fewest GPUs on which it fits.

Each method is a tuning of the model; its executions are searched by bounds, so that the best is proven. The time of
frozen weights in 4 bits is not calibrated: such plans say what fits and what memory it needs, and no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.exploration.memory_requirements import least_memory
from engine.exploration.proven_optimum import best_of
from engine.exploration.run import ExplorationCancelled
from engine.fine_tuning.goal import FineTuningGoal
from engine.post_training.choices import split_unit
from engine.scenarios.scenario import Scenario
from engine.validation.uncertainty import Interval, fine_tuning_interval_of, memory_interval_of
from hardware import GIB, System
from models import PackedSamples

__all__ = [
    "MEMORY_PARTS",
    "FineTuningPlan",
    "MethodPlan",
    "find_fine_tuning",
    "fitting_sizes",
    "plan_method",
    "scenario_of",
]

UNTIMED: Final = frozenset({"qlora"})
"""Methods whose time is not calibrated: no measured run has frozen weights in 4 bits."""
UNTIMED_REASON: Final = "Its time is not calibrated: no measured run has frozen weights in 4 bits."
USUAL_LIMITS: Final[Mapping[str, Any]] = {
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "uneven_pipelines": True,
}
"""Limits of executions where none is asked for: nothing is moved to the host."""
MOST_GPUS: Final = 4_096
"""GPUs up to which the fewest that fit are searched. Source: stated by us; 16 bytes per weight of 18 T weights."""
CURVE_SPAN: Final = 8
"""Largest part and multiple of the GPUs on the curve over GPUs. Source: stated by us."""
MEMORY_PARTS: Final = {
    "weights": ("weight_space", "weight_offload"),
    "gradients": ("weight_grad_space", "optimizer_offload"),
    "optimizer": ("optimizer_space", "optimizer_offload"),
    "activations": ("act_space", "activations_offload"),
    "checkpoints": ("act_checkpoint_size", "activations_offload"),
    "logits": ("logit_space", ""),
    "temporaries": ("temporary_space", ""),
    "reserve": ("reserve_space", ""),
}
"""Parts of the memory of a GPU: statistic, and the field that moves it to the host."""
SMALL_CHUNK: Final = 1_024
"""Tokens of a chunk of the loss that is tried as a change. Source: torchtune and Liger compute 1,024 to 8,192 at
once."""


@dataclass(frozen=True, eq=False)
class MethodPlan:
    """Fastest execution of one method on a number of GPUs; without an execution, the reason and a change that fits."""

    method: str
    num_procs: int
    """GPUs asked for, or the fewest that fit."""
    packing: PackedSamples
    row: Mapping[str, Any]
    """Fields and statistics of the execution; empty if none fits."""
    step_s: float | None
    """Time of an optimizer step of all packs of the batch [s]; None without an execution or a calibrated time."""
    tokens_per_s: float | None
    """Real tokens of all GPUs [tokens/s]; None as `step_s`."""
    seconds: float | None
    """Time of all steps of the run [s]; None as `step_s`. Loading, evaluation and checkpoints are not counted."""
    interval: Interval | None
    """Interval of the time as factors; None without a time, or where no measured run is comparable."""
    memory_gib: float | None
    """Memory of the fullest GPU [GiB]; the least of all executions if none fits."""
    capacity_gib: float
    parts: Mapping[str, float]
    """Parts of the memory [GiB]; empty if no execution fits."""
    memory_interval: Interval | None
    reason: str = ""
    """Reason why nothing fits, or why there is no time; empty otherwise."""
    fewest: int | None = None
    """Fewest GPUs of whole powers of two or whole nodes on which it fits; None if it was not searched, or none fit."""
    fewest_safe: int | None = None
    """The same where it also fits at the upper end of the interval of its memory; None as `fewest`, or without one."""
    change: str = ""
    """Smallest change with which it fits on these GPUs; empty if it fits, or no change helps."""

    @property
    def fits(self) -> bool:
        """True if an execution fits."""
        return bool(self.row)

    def usd(self, price: tuple[float, float] | None) -> tuple[float, float, float] | None:
        """Return the cost and its lower and upper end [USD]; None without a price or a time.

        Args:
            price: lowest and highest of a GPU and hour [USD/h].
        """
        if price is None or self.seconds is None:
            return None
        hours = self.seconds / 3600.0 * self.num_procs
        low, high = (1.0, 1.0) if self.interval is None else (self.interval.low, self.interval.high)
        return hours * sum(price) / 2.0, hours * low * min(price), hours * high * max(price)


@dataclass(frozen=True, eq=False)
class FineTuningPlan:
    """Result of a search: one plan for each method that was asked for."""

    goal: FineTuningGoal
    methods: Mapping[str, MethodPlan]
    curve: tuple[MethodPlan, ...] = ()
    """Plans with a time on other numbers of GPUs, and on these, where they were asked for."""

    @property
    def chosen(self) -> MethodPlan | None:
        """The fastest plan with a time; None if no method has one."""
        timed = [each for each in self.methods.values() if each.seconds is not None]
        return min(timed, key=lambda each: each.seconds or 0.0, default=None)


def fitting_sizes(system: System, most: int = MOST_GPUS) -> list[int]:
    """Return numbers of GPUs that are tried for the fewest, ascending: powers of two inside a node, then 2^k and
    3 x 2^k whole nodes; trays instead of nodes where a node is a rack.

    Args:
        system: the system.
        most: largest number.
    """
    unit = split_unit(system)
    inside = {2**k for k in range(unit.bit_length()) if 2**k < unit}
    whole = {each * unit * 2**k for each in (1, 3) for k in range(most.bit_length())}
    return sorted(each for each in inside | whole if each <= most)


def scenario_of(goal: FineTuningGoal, method: str, gpus: int) -> Scenario:
    """Return the scenario whose executions fine-tune by a method.

    Args:
        goal: the question.
        method: one of `METHODS`.
        gpus: that it runs on.
    """
    memory = goal.system.mem1
    room = memory.model_copy(update={"capacity_gib": memory.capacity_gib / (1.0 + goal.headroom)})
    return Scenario.of(
        goal.tuned(method),
        goal.system.model_copy(update={"mem1": room}) if goal.headroom else goal.system,
        num_procs=gpus,
        max_batch_size=goal.batch,
        datatype=goal.datatype,
        limits={**USUAL_LIMITS, **goal.limits},
    )


def plan_method(goal: FineTuningGoal, method: str, gpus: int) -> MethodPlan:
    """Return the plan of one method on a number of GPUs, without the fewest GPUs and changes that fit.

    Args:
        goal: the question; its own number of GPUs is not read.
        method: one of `METHODS`.
        gpus: that it runs on.

    Raises the errors of making a space.
    """
    scenario = scenario_of(goal, method, gpus)
    capacity, packing = goal.system.mem1.capacity_gib, goal.packing
    found = best_of(scenario)
    if not found:
        need = _least_need(scenario)
        return MethodPlan(
            *(method, gpus, packing, {}, None, None, None, None),
            memory_gib=need,
            capacity_gib=capacity,
            parts={},
            memory_interval=memory_interval_of(scenario),
            reason=_describe_refusal(gpus, need, capacity / (1.0 + goal.headroom)),
        )
    row: dict[str, Any] = {str(name): value for name, value in found.items()}
    step = seconds = rate = interval = None
    if method not in UNTIMED:
        # A step of all packs: the execution's batch may be smaller, by less than its data-parallel degree.
        step = float(row["total_time"]) * goal.batch / float(row["batch_size"])
        # The last step has the packs that are left; a run of less than one step still takes that step.
        seconds = max(goal.packs * goal.epochs / float(row["sample_rate"]), step)
        rate = float(row["sample_rate"]) * goal.pack_to * packing.fill
        interval = fine_tuning_interval_of(scenario, row)
    return MethodPlan(
        method,
        gpus,
        packing,
        row,
        step,
        rate,
        seconds,
        interval,
        memory_gib=float(row["proc_mem_tier1_cap_req"]) / GIB,
        capacity_gib=capacity,
        parts=_memory_parts(row),
        memory_interval=memory_interval_of(scenario),
        reason=UNTIMED_REASON if method in UNTIMED else "",
    )


def find_fine_tuning(
    goal: FineTuningGoal,
    *,
    progress: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
    with_curve: bool = False,
) -> FineTuningPlan:
    """Return the best plan of each method, the fewest GPUs on which it fits, and what would make it fit.

    Args:
        goal: the question.
        with_curve: whether to plan on other numbers of GPUs too.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `engine.ExplorationCancelled` on `cancel`, and the errors of making a space.
    """
    methods: dict[str, MethodPlan] = {}
    for number, method in enumerate(goal.methods):
        progress(number / len(goal.methods), "searching")
        fewest = _fewest(goal, method, cancel)
        gpus = goal.num_procs or fewest or _leanest(goal, method, cancel)
        plan = plan_method(goal, method, gpus)
        change = "" if plan.fits else _smallest_change(goal, method, gpus, fewest, cancel)
        safe = _fewest_safe(goal, method, fewest, plan.memory_interval, cancel)
        methods[method] = replace(plan, fewest=fewest, fewest_safe=safe, change=change)
    progress(1.0, "searching")
    found = FineTuningPlan(goal, methods)
    return replace(found, curve=tuple(_curve(found, cancel))) if with_curve else found


def _curve(plan: FineTuningPlan, cancel: Callable[[], bool]) -> Iterator[MethodPlan]:
    """Yield the plans with a time on a part and a multiple of the GPUs of the fastest."""
    chosen = plan.chosen
    if chosen is None:
        return
    sizes = [*fitting_sizes(plan.goal.system, CURVE_SPAN * chosen.num_procs), chosen.num_procs]
    for method in plan.methods:
        if method in UNTIMED:
            continue
        for gpus in sorted({each for each in sizes if each * CURVE_SPAN >= chosen.num_procs}):
            if cancel():
                raise ExplorationCancelled("The search was stopped.")
            found = plan_method(plan.goal, method, gpus)
            if found.fits:
                yield found


def _memory_parts(row: Mapping[str, Any]) -> dict[str, float]:
    parts = {}
    for words, (name, moved) in MEMORY_PARTS.items():
        value = float(row[f"{name}_with_offload" if moved and row[moved] else name])
        if value > 0.0:
            parts[words] = value / GIB
    return parts


def _fits(goal: FineTuningGoal, method: str, gpus: int) -> bool:
    return bool(best_of(scenario_of(goal, method, gpus)))


def _fewest_safe(
    goal: FineTuningGoal, method: str, fewest: int | None, error: Interval | None, cancel: Callable[[], bool]
) -> int | None:
    """Return the fewest GPUs on which a method fits at the upper end of the interval of its memory."""
    if fewest is None or error is None:
        return None
    tight = replace(goal, headroom=max(goal.headroom, error.high - 1.0))
    return _fewest(tight, method, cancel, least=fewest)


def _fewest(goal: FineTuningGoal, method: str, cancel: Callable[[], bool], least: int = 1) -> int | None:
    for gpus in fitting_sizes(goal.system):
        if gpus < least:
            continue
        if cancel():
            raise ExplorationCancelled("The search was stopped.")
        if _fits(goal, method, gpus):
            return gpus
    return None


def _leanest(goal: FineTuningGoal, method: str, cancel: Callable[[], bool]) -> int:
    """Return the number of GPUs on which a method that fits on none needs the least memory."""
    needs = {}
    for gpus in fitting_sizes(goal.system):
        if cancel():
            raise ExplorationCancelled("The search was stopped.")
        need = _least_need(scenario_of(goal, method, gpus))
        if need is not None:
            needs[gpus] = need
    return min(needs, key=lambda gpus: needs[gpus], default=goal.system.node_size)


def _least_need(scenario: Scenario) -> float | None:
    """Return the least memory that any execution needs [GiB]; None if no layout suits model and batch."""
    needs = least_memory(scenario.space)["need"]
    return None if needs.empty else float(needs.min()) / GIB


def _describe_refusal(gpus: int, need: float | None, capacity: float) -> str:
    on = f"{gpus:,} {'GPU' if gpus == 1 else 'GPUs'}"
    if need is None:
        return f"No layout of {on} suits model and batch."
    return f"The leanest layout on {on} needs {need:,.4g} GiB of {capacity:,.4g} GiB."


def _smallest_change(
    goal: FineTuningGoal, method: str, gpus: int, fewest: int | None, cancel: Callable[[], bool]
) -> str:
    """Return the first of some changes, the smallest first, with which a method fits; empty if none helps."""
    changes: list[tuple[str, FineTuningGoal]] = []
    if not goal.loss_chunk or goal.loss_chunk > SMALL_CHUNK:
        changes.append((f"compute the loss in chunks of {SMALL_CHUNK:,} tokens", replace(goal, loss_chunk=SMALL_CHUNK)))
    if goal.system.mem2.capacity_gib:
        for name, words in (
            ("optimizer_offload", "move the optimizer to host memory"),
            ("activations_offload", "move activations to host memory"),
            ("weight_offload", "move weights to host memory"),
        ):
            if name not in goal.limits:
                changes.append((words, replace(goal, limits={**goal.limits, name: True})))
    for words, changed in changes:
        if cancel():
            raise ExplorationCancelled("The search was stopped.")
        if _fits(changed, method, gpus):
            return words
    near = _nearest_size(goal, method, gpus, fewest, cancel)
    return "" if near is None else f"use {near:,} {'GPU' if near == 1 else 'GPUs'}"


def _nearest_size(
    goal: FineTuningGoal, method: str, gpus: int, fewest: int | None, cancel: Callable[[], bool]
) -> int | None:
    """Return the largest number of GPUs below the given one on which a method fits, or the fewest above it."""
    if fewest is None or fewest > gpus:
        return fewest
    for size in reversed(fitting_sizes(goal.system)):
        if cancel():
            raise ExplorationCancelled("The search was stopped.")
        if fewest < size < gpus and _fits(goal, method, size):
            return size
    return None if fewest == gpus else fewest
