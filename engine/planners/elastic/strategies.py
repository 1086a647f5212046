"""Static strategies: rules that give a plan for any placement, without a performance model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.planners.contract import PlanError
from engine.planners.elastic.plan_names import OFFLOAD, PlanName, parse_plan
from models.documents import did_you_mean, shown

__all__ = ["MEGATRON", "STATIC", "ElasticStrategy", "megatron", "own_strategy", "strategy_of"]


@dataclass(frozen=True)
class ElasticStrategy:
    """A rule: its name, its description in words, and its plan for the GPUs on each node, None for no plan."""

    name: str
    title: str
    rule: Callable[[tuple[int, ...]], PlanName | None]

    def plan(self, nodes: tuple[int, ...]) -> PlanName | None:
        """Returns the plan on a placement, None where the rule gives none.

        Args:
            nodes: GPUs on each node.
        """
        return self.rule(nodes)


def _plan_of_degrees(pp: float, tp: float, dp: float) -> PlanName | None:
    """Returns the plan of degrees if all are whole numbers of at least 1."""
    whole = all(each >= 1 and each == int(each) for each in (pp, tp, dp))
    return PlanName(int(pp), int(tp), int(dp)) if whole else None


def megatron(pp: int = 2, tp: int = 2) -> ElasticStrategy:
    """Returns the rule of Megatron's 3D parallelism: the smallest tensor and pipeline degrees that fit, scaled out by
    data parallelism.

    Args:
        pp, tp: these degrees; 2 and 2 for LLaMA-2-7B with a batch of 16.
    """
    return ElasticStrategy(
        "Megatron 3D",
        f"{pp} stages of {tp} tensor parallel ranks, replicated",
        lambda nodes: _plan_of_degrees(pp, tp, sum(nodes) // (pp * tp)),
    )


MEGATRON: Final = megatron()

OFFLOADED: Final = PlanName(zero=OFFLOAD, recompute=True)

STATIC: Final[Mapping[str, ElasticStrategy]] = {
    each.name: each
    for each in (
        ElasticStrategy(
            "TP+DP",
            "tensor parallelism inside nodes, data parallelism across them",
            lambda nodes: _plan_of_degrees(1, nodes[0], sum(nodes) // nodes[0]),
        ),
        ElasticStrategy(
            "TP+PP",
            "tensor parallelism inside nodes, a pipeline across them",
            lambda nodes: _plan_of_degrees(sum(nodes) // nodes[0], nodes[0], 1),
        ),
        MEGATRON,
        ElasticStrategy(
            OFFLOADED.title,
            "ZeRO-Offload with recomputation on all GPUs",
            lambda nodes: OFFLOADED,
        ),
    )
}
"""The strategies with which figure 7 compares, in its order."""


def own_strategy(text: str, name: str | None = None) -> ElasticStrategy:
    """Returns a user's rule: a plan for all placements, such as zero-dp+ga, or degrees as products.

    Degrees are three terms with commas, of whole numbers and of n, all GPUs, g, GPUs of a node, and w, nodes, with *
    and /: `n/g, g, 1` is tensor parallelism inside nodes and a pipeline across them. A degree that is no whole number
    gives no plan.

    Args:
        text: the rule.
        name: what to call it; the text where None.

    Raises `engine.planners.contract.PlanError` for an invalid rule.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        fixed = parse_plan(text)
        return ElasticStrategy(name or fixed.title, f"always {fixed.title}", lambda nodes: fixed)
    if len(parts) != 3:
        raise PlanError(f"{shown(text)} has {len(parts)} terms; a rule has three: pipeline, tensor, data parallel.")
    terms = [_parse_term(part) for part in parts]

    def rule(nodes: tuple[int, ...]) -> PlanName | None:
        known = {"n": sum(nodes), "g": nodes[0], "w": len(nodes)}
        found = _plan_of_degrees(*(_evaluate_term(term, known) for term in terms))
        return found if found and found.pp * found.tp * found.dp == known["n"] else None

    return ElasticStrategy(name or text, f"{', '.join(parts)} (n GPUs, g on a node, w nodes)", rule)


def _parse_term(text: str) -> list[str]:
    pieces = re.findall(r"[0-9]{1,6}|[ngw]|[*/]", text, re.ASCII)
    if "".join(pieces) != re.sub(r"\s", "", text) or not pieces or len(pieces) > 19:
        raise PlanError(f"{shown(text)} is no term; write whole numbers, n, g and w with * and /, such as n/g.")
    if len(pieces) % 2 == 0 or any((piece in "*/") != bool(at % 2) for at, piece in enumerate(pieces)):
        raise PlanError(f"{shown(text)} is no term; write factors with * or / between them, such as n/g.")
    return pieces


def _evaluate_term(term: Sequence[str], known: Mapping[str, int]) -> float:
    value, divisor = 1, 1
    for at in range(0, len(term), 2):
        factor = known[term[at]] if term[at] in known else int(term[at])
        if at and term[at - 1] == "/":
            divisor *= factor
        else:
            value *= factor
    return value / divisor if divisor else 0.0


def strategy_of(strategy: str | ElasticStrategy) -> ElasticStrategy:
    """Returns a strategy from a strategy, a name of `STATIC`, or the text of a rule.

    Args:
        strategy: any of these.

    Raises `engine.planners.contract.PlanError` for anything else, or an invalid rule.
    """
    if isinstance(strategy, ElasticStrategy):
        return strategy
    if strategy in STATIC:
        return STATIC[strategy]
    try:
        return own_strategy(strategy)
    except PlanError as error:
        hint = did_you_mean(strategy, list(STATIC))
        raise PlanError(f"There is no strategy {shown(strategy)}{hint}, and as a rule: {error}") from None
