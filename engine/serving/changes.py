"""Changes of GPUs, lengths and limits: the recommended deployment after each, next to the present one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.serving.exploration import BEST_BY, ServingExploration, explore
from engine.serving.recommended import DeploymentRecommendation, recommend_deployment
from engine.serving.space import MOST, MOST_PROCESSORS

__all__ = ["ChangedDeployment", "explore_change", "try_changes"]

LEAST: Final = 0.0005
"""Share of the output below which a difference rounds to none. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class ChangedDeployment:
    """Recommended deployment after a change of the question."""

    code: str
    """Stable word for the change, such as "one_more_gpu"."""
    words: str
    settings: Mapping[str, Any]
    """Changed arguments of `explore`, by name."""
    recommendation: DeploymentRecommendation
    output: float | None
    """Output of all GPUs over the present one; None if nothing runs."""
    output_per_gpu: float | None
    """Output per GPU over the present one; None if nothing runs."""
    verdict: str


def explore_change(
    found: ServingExploration,
    *,
    cancel: Callable[[], bool] | None = None,
    largest: int = MOST,
    **settings: Any,
) -> ServingExploration:
    """Return the deployments of a changed question.

    Args:
        found: deployments of the present question.
        cancel: returns whether to stop.
        largest: deployments that the space may have.
        settings: changed arguments of `explore`.

    Raises as `explore` does.
    """
    present: dict[str, Any] = {
        "num_procs": found.space.num_procs,
        "prompt": found.space.prompt,
        "output": found.space.output,
        "limits": found.space.limits,
        "time_to_first_token": found.time_to_first_token,
        "time_per_output_token": found.time_per_output_token,
        "price": found.price,
        "calibration": found.calibration,
        "assumptions": found.assumptions,
        "requests_per_slot": found.requests_per_slot,
        "factors": found.factors,
    }
    model, system = settings.pop("model", found.model), settings.pop("system", found.system)
    return explore(model, system, **{**present, **settings}, cancel=cancel, largest=largest)


def try_changes(
    found: ServingExploration,
    recommended: DeploymentRecommendation,
    *,
    cancel: Callable[[], bool] | None = None,
    largest: int = MOST,
) -> tuple[ChangedDeployment, ...]:
    """Return the recommended deployments with more GPUs, half the context, and half of each limit.

    Args:
        found: deployments of the present question.
        recommended: of them.
        cancel: returns whether to stop.
        largest: deployments that a space may have.

    Raises as `explore` does.
    """
    changes = []
    for code, words, settings in _list_changes(found, recommended):
        after = explore_change(found, cancel=cancel, largest=largest, **settings)
        new = recommend_deployment(after, recommended.cache_room)
        output, per_gpu = (_ratio(new.row, recommended.row, name) for name in ("tokens_per_s", BEST_BY))
        more = settings.get("num_procs", found.space.num_procs) / found.space.num_procs
        verdict = _describe(output, per_gpu, more) if recommended.row is not None else _describe_first(new)
        changes.append(ChangedDeployment(code, words, settings, new, output, per_gpu, verdict))
    return tuple(changes)


def _list_changes(
    found: ServingExploration, recommended: DeploymentRecommendation
) -> list[tuple[str, str, dict[str, Any]]]:
    """Return code, words and changed arguments of each change."""
    number, node = found.space.num_procs, found.system.node_size
    changes: list[tuple[str, str, dict[str, Any]]] = []
    sizes: dict[int, tuple[str, str]] = {}
    if node > 1:
        sizes[number + node] = "one_more_node", f"1 more node: {node:,} GPUs"
    if recommended.row is not None:
        tensor, expert, pipeline = (int(recommended.row[f"{name}_par"]) for name in ("tensor", "expert", "pipeline"))
        # Replicas that share experts come together.
        unit, noun = max(tensor, expert) * pipeline, "replica" if expert <= tensor else "group of replicas"
        sizes.setdefault(number + unit, ("one_more_replica", f"1 more {noun}: {unit:,} GPUs"))
    sizes[number + 1] = "one_more_gpu", "1 more GPU"
    changes += [
        (code, words, {"num_procs": size}) for size, (code, words) in sorted(sizes.items()) if size <= MOST_PROCESSORS
    ]
    prompt, output = found.space.prompt, found.space.output
    if prompt > 1 or output > 1:
        half = {"prompt": max(prompt // 2, 1), "output": max(output // 2, 1)}
        changes.append(("half_the_context", f"Half the context: {half['prompt']:,} + {half['output']:,} tokens", half))
    for name, code, words in (
        ("time_to_first_token", "half_the_first_token", "First token in half the time"),
        ("time_per_output_token", "half_the_time_per_token", "Half the time per token"),
    ):
        limit = getattr(found, name)
        if limit is not None:
            changes.append((code, f"{words}: {1e3 * limit / 2:,.4g} ms", {name: limit / 2}))
    return changes


def _ratio(new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, name: str) -> float | None:
    return None if new is None or old is None else float(new[name]) / float(old[name])


def _describe(output: float | None, per_gpu: float | None, more: float) -> str:
    """Return what a change does to the output; `more`: GPUs over the present number."""
    if output is None or per_gpu is None:
        return "Nothing runs within the limits." if more == 1 else "Nothing runs: no layout uses all of these GPUs."
    if more == 1:
        return f"{_percent(per_gpu)} output per GPU." if abs(per_gpu - 1.0) >= LEAST else "No change of the output."
    # Fewer GPUs of the larger number can always run as before.
    if output <= 1:
        return f"No gain: {_percent(output)} output."
    return f"{_percent(output)} output for {_percent(more)} GPUs."


def _describe_first(new: DeploymentRecommendation) -> str:
    return "Nothing runs within the limits." if new.row is None else "Something runs."


def _percent(ratio: float) -> str:
    return f"{100 * abs(ratio - 1.0):.1f} % {'more' if ratio >= 1 else 'less'}"
