"""Plans in the text forms that CFP prints, for programs that read its logs.

Seconds are predicted; where a log has three measurements, the same prediction is printed three times. Source: CFP
(published README): its forms, without its words on passes and times of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from engine.planners.contract import PlanError
from engine.planners.intra_operator.layer_costs import LISTED
from engine.planners.intra_operator.parallel_blocks import layer_blocks
from engine.planners.intra_operator.search import IntraOperatorPlan
from engine.planners.intra_operator.segments import segments_of
from engine.planners.intra_operator.uniform import uniform_vectors
from engine.reproductions.alpa.suite_models import is_suite
from hardware import GIB

__all__ = ["TEXT_FORMS", "log_text"]

TEXT_FORMS: Final = ("analysis", "profile", "search", "enumeration")


def log_text(plan: IntraOperatorPlan, form: str = "search") -> str:
    """Returns a plan as a log.

    Args:
        plan: what `search` returned, of a mesh of one axis.
        form: "analysis" (the ParallelBlocks with their plan tables, and the sequence of segments), "profile" (every
            vector of every different segment), "search" (the chosen plan) or "enumeration" (every vector of the whole
            model, with volume and seconds of collectives and of computation).

    Raises:
        PlanError: there is no such form, the mesh has two axes, or nothing was chosen.
    """
    if form not in TEXT_FORMS:
        raise PlanError(f"There is no text form {form[:40]!r}; there are {', '.join(TEXT_FORMS)}.")
    if plan.mesh.outer is not None:
        raise PlanError("The text forms number the strategies of one mesh axis; leave the outer axis.")
    lines = {
        "analysis": _analysis_lines,
        "profile": _profile_lines,
        "search": _search_lines,
        "enumeration": _enumeration_lines,
    }[form]
    return "\n".join([*_title_lines(plan), *lines(plan)]) + "\n"


def _title_lines(plan: IntraOperatorPlan) -> Iterator[str]:
    """Yield the line above a test; models of the library have none, because no log names them."""
    if is_suite(plan.model):
        family, _, letter = plan.model.strip().lower().replace("_", " ").replace("-", " ").partition(" ")
        called = {"gpt": "GPT", "moe": "MoE", "llama": "LLAMA"}[family]
        config = f" config:{letter.strip().upper()}" if letter else ""
        sizes = f"batchsize:{plan.batch} layers:{len(plan.layers)} devices:{plan.mesh.devices}"
        yield f"============ {called} test: parallel_block_opt:True{config} {sizes} ============"


def _analysis_lines(plan: IntraOperatorPlan) -> Iterator[str]:
    number = 0
    for graph in {each.name: each for each in plan.layers}.values():
        for block in layer_blocks(graph):
            yield f"Parallel Block {number}:"
            number += 1
            for name, table in block.plans.items():
                yield f"    {name}"
                yield f"    Plan: {', '.join(map(str, table))}, "
    for row in segments_of(plan.layers).to_dict("records"):
        yield f"ParallelBlocks sequence: {row['printed']} mapped to  {row['printed_as']}"


def _profile_lines(plan: IntraOperatorPlan) -> Iterator[str]:
    yield f"NUM SEGMENT is {len(plan.layers)}"
    for number, graph in enumerate({each.name: each for each in plan.layers}.values()):
        yield ""
        yield f"RUN AutoSharding FOR SEGMENT {number} segment_{number}"
        yield ""
        yield f"segment PB search space: {[each.space for each in layer_blocks(graph)]}"
        table = uniform_vectors([graph], plan.mesh, plan.widths)
        for vector, seconds, memory, reason in zip(
            table["vector"], table["seconds"], table["memory"], table["reason"], strict=True
        ):
            cost = float("inf") if reason else float(seconds)
            yield (
                f"SegmentIdx: {number} ParallelBlock Strategy: {list(vector)} avgcost: {cost} "
                f"mem_cost(GB): {_round_to_half_gib(float(memory))}"
            )


def _search_lines(plan: IntraOperatorPlan) -> Iterator[str]:
    chosen = plan.chosen
    if chosen is None:
        raise PlanError(plan.infeasible)
    seconds = np.full(3, chosen.seconds)
    yield f"searched ParallelBlock Strategies solution: {[one for each in chosen.vectors for one in each]}"
    yield f"searched training cost: {_times_text(chosen.seconds)}, memory_cost: {_round_to_half_gib(chosen.memory)}"
    yield f"TFLOP_COUNT: {plan.tflop}"
    yield f"tflops: {[float(plan.tflop / each) for each in seconds]}"


def _enumeration_lines(plan: IntraOperatorPlan) -> Iterator[str]:
    kinds = list({each.name: each for each in plan.layers}.values())
    blocks = {each.name: layer_blocks(each) for each in kinds}
    spaces = [block.space for each in plan.layers for block in blocks[each.name]]
    yield f"generated_search_space: {spaces}"
    if len(plan.vectors) >= LISTED:
        raise PlanError(f"{len(plan.vectors):,} vectors are more than are printed; fewer than {LISTED:,} are.")
    for row in plan.vectors.to_dict("records"):
        if row["reason"]:
            continue
        parts, at = {}, 0
        for each in kinds:
            parts[each.name] = row["vector"][at : at + len(blocks[each.name])]
            at += len(blocks[each.name])
        vector = [one for each in plan.layers for one in parts[each.name]]
        yield f"Comm Volume: {row['volume']:g}"
        yield f"Comm Overhead: {row['communication_seconds']:g}"
        yield f"Comp Overhead: {row['compute_seconds']:g}"
        yield f"sval {vector} {_times_text(float(row['seconds']))} {round(row['memory'])}"


def _times_text(seconds: float) -> str:
    """Return three equal times as numpy prints them, to eight digits."""
    return np.array2string(np.full(3, seconds), precision=8, floatmode="maxprec", max_line_width=200)


def _round_to_half_gib(memory: float) -> float:
    """Return memory in GiB, rounded to halves."""
    return round(memory / GIB * 2.0) / 2.0
