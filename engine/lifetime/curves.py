"""Curves of training phases: days, failures and energy at every size, for training and for steps of reinforcement
learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.economics import DerivedError, RunInputs, TrainingRun, parameter_count, token_flops, training_run
from engine.executions.execution_names import execution_name
from engine.exploration.run import ExplorationCancelled
from engine.lifetime.chain import PhaseCurve, PhaseSize
from engine.recommendation.training_plans import RunFigure, coarse_sizes
from engine.scenarios.scenario import Scenario
from engine.space.space import SpaceError
from engine.validation.uncertainty import interval_of
from hardware import GIB

__all__ = ["StepFound", "curve_of_steps", "curve_of_training", "least_gpus", "phase_sizes"]

DAY: Final = 86_400.0
"""Seconds of a day [s]."""
KWH_PER_MWH: Final = 1_000.0
"""Kilowatt-hours of a megawatt-hour."""
BEYOND: Final = 4
"""Multiple of the fastest size up to which larger ones are tried. Source: stated by us."""
FEW: Final = 8
"""Nodes beyond which sizes of short phases are powers of two. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class StepFound:
    """Step of fine-tuning or reinforcement learning on so many GPUs."""

    seconds: float
    low: float | None
    """Factor on the step at the lower end of its interval []; None where the error is unknown."""
    high: float | None
    layout: str
    row: Any = None


def phase_sizes(node: int, least: float, most: int, *, is_short: bool = False) -> list[int]:
    """Return the numbers of GPUs at which a phase is tried: powers of two inside a node, then 2^k and 3 * 2^(k-1)
    nodes, and all of them.

    Args:
        node: GPUs of a node.
        least: smallest size.
        most: largest size.
        is_short: True for a phase that is a small part of the whole: beyond some nodes powers of two only.
    """
    largest = most // node * node or most
    found = {*coarse_sizes(node, 1, largest), largest}
    if is_short:
        found -= {3 * node * 2**k for k in range(24) if 3 * 2**k > FEW}
    return sorted(size for size in found if min(least, largest) <= size <= largest)


def least_gpus(scenario: Scenario, tokens: float, days: float | None, *, is_offloaded: bool) -> float:
    """Return the GPUs below which a phase cannot run in time: its weights fill them, or its arithmetic takes twice the
    days at the peak rate.

    Args:
        scenario: at any number of GPUs.
        tokens: to train.
        days: the deadline of the whole chain [days]; None without one.
        is_offloaded: True if weights may be in host memory.
    """
    least = 1.0
    if not is_offloaded:  # 16-bit weights alone
        least = 2.0 * parameter_count(scenario.model) / (scenario.system.mem1.capacity_gib * GIB)
    if days is not None:
        peak = scenario.system.peak_tflops(scenario.datatype) * 1e12
        work = token_flops(scenario.model).model("causal") * tokens
        least = max(least, 0.5 * work / (peak * days * DAY))
    return least


def curve_of_training(
    name: str,
    kind: str,
    sizes: Sequence[int],
    scenario_at: Callable[[int], Scenario],
    search: Callable[[Scenario], Mapping[str, Any] | None],
    inputs: RunInputs,
    tell: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
) -> PhaseCurve:
    """Return the curve of a phase that trains tokens.

    Args:
        name: of the phase.
        kind: of the phase.
        sizes: numbers of GPUs to try, ascending.
        scenario_at: returns the scenario on so many GPUs.
        search: returns the execution to run of a scenario; None if none is allowed or runs.
        inputs: of the training run, with its tokens.
        tell: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `engine.ExplorationCancelled`.
    """

    def size_at(gpus: int) -> PhaseSize | str:
        scenario = scenario_at(gpus)
        execution = search(scenario)
        if execution is None:
            return "No execution fits with the memory that is kept free."
        rate = float(execution["sample_rate"]) * scenario.model.tokens_per_sample
        parameters = float(parameter_count(scenario.model))
        interval = interval_of(scenario, execution)
        factors = None if interval is None else (interval.low, interval.high)
        runs = [
            training_run(inputs, tokens_per_s=rate / factor, num_procs=gpus, parameters=parameters)
            for factor in (1.0, *(factors or ()))
        ]
        return _size_of(gpus, runs, execution_name(execution), execution)

    return _curve(name, kind, sizes, size_at, tell, cancel)


def curve_of_steps(
    name: str,
    kind: str,
    sizes: Sequence[int],
    step_at: Callable[[int], StepFound | str],
    parameters: float,
    inputs: RunInputs,
    tell: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
) -> PhaseCurve:
    """Return the curve of a phase of steps of fine-tuning or reinforcement learning; failures stop it as in training.

    Args:
        name: of the phase.
        kind: of the phase.
        sizes: numbers of GPUs to try, ascending.
        step_at: returns the step on so many GPUs, or the reason why none runs.
        parameters: of the model, for checkpoints.
        inputs: of the run, with its steps in place of tokens.
        tell: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `engine.ExplorationCancelled`.
    """

    def size_at(gpus: int) -> PhaseSize | str:
        step = step_at(gpus)
        if isinstance(step, str):
            return step
        runs = [
            training_run(inputs, tokens_per_s=1.0 / (step.seconds * factor), num_procs=gpus, parameters=parameters)
            for factor in (1.0, *(each for each in (step.low, step.high) if each is not None))
        ]
        return _size_of(gpus, runs, step.layout, step.row)

    return _curve(name, kind, sizes, size_at, tell, cancel)


def _size_of(gpus: int, runs: Sequence[TrainingRun], layout: str, row: Any) -> PhaseSize:
    """Return a size of a run, and of the runs at the ends of its interval where that is known."""
    run, ends = runs[0], sorted(each.wall_s / DAY for each in runs[1:])
    # A failure costs the restart and, on average, half a checkpoint interval of lost work.
    lost = run.inputs.restart_s + run.interval_s / 2.0
    return PhaseSize(
        gpus,
        RunFigure(run.wall_s / DAY, *(ends or (None, None))),
        run.failures,
        lost / DAY,
        None if run.energy_kwh is None else run.energy_kwh / KWH_PER_MWH,
        layout,
        row,
    )


def _curve(
    name: str,
    kind: str,
    sizes: Sequence[int],
    size_at: Callable[[int], PhaseSize | str],
    tell: Callable[[float, str], None],
    cancel: Callable[[], bool],
) -> PhaseCurve:
    found: list[PhaseSize] = []
    refused: dict[int, str] = {}
    fastest: PhaseSize | None = None
    for place, gpus in enumerate(sizes):
        if cancel():
            raise ExplorationCancelled("The plan was cancelled.")
        tell(place / len(sizes), f"{name}, {gpus:,} GPUs")
        try:
            size = size_at(gpus)
        except (DerivedError, SpaceError) as problem:
            size = str(problem)
        if isinstance(size, str):
            refused[gpus] = size
        else:
            found.append(size)
            if fastest is None or size.days.value < fastest.days.value:
                fastest = size
        if fastest is not None and gpus >= BEYOND * fastest.gpus:
            break
    return PhaseCurve(name, kind, tuple(found), refused)
