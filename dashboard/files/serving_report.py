"""A deployment on one page: the recommendation, charts, changes, comparison and assumptions, as an HTML report."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from dashboard.charts.elements.advice import sides
from dashboard.charts.elements.markup import figure_strip, legend
from dashboard.charts.elements.template import Chart
from dashboard.charts.serving import MEMORY, decode_step, request_time, serving_frontier, serving_memory
from dashboard.charts.serving_comparison import compared_steps
from dashboard.files.exports import version
from dashboard.files.report import drawn, page, whole
from dashboard.files.report_parts import Figure
from dashboard.queries.serving import (
    basis_of,
    change_rows,
    chips,
    comparison_rows,
    curves,
    deployment_tiles,
    per_degree,
    recommended_sides,
    refused_part,
    token_factor,
)
from dashboard.words.numbers import count, counted, format_value, percent, plain
from dashboard.words.serving import bits_words, precision_words
from engine.questions.documents.serving import DeploymentsQuestion
from engine.serving import (
    FIELDS,
    Assumptions,
    ChangedDeployment,
    DeploymentComparison,
    DeploymentRecommendation,
    ServingExploration,
    by_name,
    deployment_name,
    not_represented,
)
from engine.serving.exploration import BEST_BY
from engine.serving.reasons import by_code

__all__ = ["build_report", "contender_rows", "describe_question"]


def contender_rows(advice: DeploymentRecommendation) -> list[tuple[str, str, str]]:
    """Return the best of other layouts in words: deployment, output per GPU, why it is not recommended.

    Args:
        advice: the recommendation.
    """
    return [
        (
            f"{deployment_name(each.row)}, {bits_words(each.row)}",
            format_value(by_name(BEST_BY), each.row[BEST_BY]),
            each.reason,
        )
        for each in advice.rejected
    ]


def describe_question(found: ServingExploration) -> str:
    """Return the question in a sentence.

    Args:
        found: its deployments.
    """
    space = found.space
    limits = [
        f"{format_value(by_name(name), limit)} {words}"
        for name, limit, words in (
            ("time_to_first_token", found.time_to_first_token, "to the first token"),
            ("time_per_output_token", found.time_per_output_token, "per token"),
        )
        if limit is not None
    ]
    within = f" within {' and '.join(limits)}" if limits else " without limits"
    return (
        f"Serve {found.model.title or found.model.name} on {space.num_procs:,} × "
        f"{found.system.title or found.system.name}, "
        f"prompts of {space.prompt:,} and outputs of {space.output:,} tokens{within}."
    )


def build_report(
    asked: DeploymentsQuestion,
    found: ServingExploration,
    advice: DeploymentRecommendation,
    chosen: Mapping[str, Any],
    changed: tuple[ChangedDeployment, ...],
    compared: tuple[DeploymentComparison, ServingExploration] | None,
    address: str = "",
) -> bytes:
    """Return the report as a UTF-8 HTML document that opens offline.

    Args:
        asked: the question.
        found: its deployments.
        advice: the recommendation.
        chosen: deployment that the report is about.
        changed: recommended deployments after changes of the question.
        compared: the chosen deployment next to a second one, with the deployments of that one's system.
        address: link to the page, printed as text.
    """
    name = f"Serving {found.model.title or found.model.name}"
    places, data = drawn(_figures(found, chosen, compared))
    is_recommended = advice.row is not None and int(advice.row["id"]) == int(chosen["id"])
    what = "Recommended" if is_recommended else "Chosen"
    changes = change_rows(found, advice, changed)
    settings = [(column.label, str(chosen[column.name])) for column in FIELDS]
    settings += [(label, value) for label, value in chips(chosen) if label in ("requests at once", "room in cache")]
    reasons = sorted(found.rejected.items(), key=lambda item: -item[1])
    body = (
        f"<h1>{escape(name)}</h1><p>{escape(describe_question(found))}</p>{sides(recommended_sides(found, advice))}"
        f"<h2>{what}: {escape(deployment_name(chosen))}</h2><p>{escape(precision_words(chosen))}</p>"
        f"{figure_strip(deployment_tiles(found, chosen), basis_of(found.factors))}{places}"
        f"<h2>Settings</h2>{_table_markup(('Setting', 'Value'), settings)}"
        "<h2>Why not the others</h2>"
        f"{_table_markup(('Deployment', 'Output per GPU', 'Why not'), contender_rows(advice))}"
        "<h2>What would change the answer</h2>"
        f"{_table_markup(list(changes[0]), [list(row.values()) for row in changes])}"
        f"{_comparison_section(compared)}"
        f"<h2>Why deployments do not run</h2><p>{count(found.total - found.feasible)} of {count(found.total)}.</p>"
        f"{_table_markup(('Because', 'Deployments'), [(by_code(code).label, f'{n:,}') for code, n in reasons])}"
        f"<h2>Assumptions</h2><ul>{_assumption_items(found, advice)}</ul>"
        f"{whole('question', asked.model_dump(mode='json'), address, 'as a question of the verb find_deployments')}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def _figures(
    found: ServingExploration,
    chosen: Mapping[str, Any],
    compared: tuple[DeploymentComparison, ServingExploration] | None,
) -> list[Figure]:
    gained = (found.assumptions or Assumptions()).tokens_per_step
    shown = [
        Figure(
            "frontier",
            "Output per GPU against speed for a user",
            "frontier of every tensor parallel degree; hollow: misses a limit",
            partial(_draw_frontier, found, chosen),
        ),
        Figure("step", "One decode step", "by kind of operation", lambda mode: decode_step(chosen, mode)),
        Figure(
            "request",
            "One request",
            "until its last token",
            lambda mode: request_time(chosen, mode, gained=gained, factor=token_factor(found.factors, chosen)),
        ),
        Figure(
            "memory",
            "Where the memory goes",
            "per GPU, most output of every tensor parallel degree",
            lambda mode: serving_memory(per_degree(found), mode),
            legend(MEMORY),
        ),
    ]
    if compared is not None:
        pair = compared[0]
        shown.append(
            Figure(
                "compared",
                "Two decode steps",
                "parts of A and B",
                lambda mode: compared_steps(pair.one, pair.other, mode),
            )
        )
    return shown


def _draw_frontier(found: ServingExploration, chosen: Mapping[str, Any], mode: str) -> Chart:
    return serving_frontier(
        curves(found),
        mode,
        chosen={**chosen, "title": deployment_name(chosen)},
        refused=refused_part(found),
        limits=(found.time_to_first_token, found.time_per_output_token),
    )


def _comparison_section(compared: tuple[DeploymentComparison, ServingExploration] | None) -> str:
    if compared is None:
        return ""
    pair, there = compared
    where = there.system.title or there.system.name
    one, other = (f"{deployment_name(each)}, {bits_words(each)}" for each in (pair.one, pair.other))
    names = f"A: {one}. B: {other}; on {where}."
    return (
        f"<h2>Two deployments</h2><p>{escape(names)}</p><p>{escape(pair.sentence)}</p>"
        f"{_table_markup(('', 'A', 'B', 'B against A'), comparison_rows(pair))}"
    )


def _assumption_items(found: ServingExploration, advice: DeploymentRecommendation) -> str:
    """Return what the figures rest on, as list items."""
    terms = found.assumptions or Assumptions()
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    items = [
        "Replicas are full, requests do not queue, experts are visited evenly, tokens come one by one.",
        f"Memory kept free for the engine: {percent(terms.reserve_share, 0)} of the capacity.",
        f"Prefill passes of up to {terms.prefill_chunk:,} tokens.",
        f"Prefix cache hits: {percent(terms.prefix_hit_rate, 0)} of the prompt.",
        *_choice_items(terms),
        *([] if found.factors is None else [found.factors.describe()]),
        f"Error of a comparison of outputs: {percent(advice.error, 0)}. Room in the cache for "
        f"{percent(advice.cache_room, 0)} more requests.",
        *not_represented(found.model),
        f"Shardscape {version()}, {made}. All {found.total:,} deployments were evaluated.",
    ]
    return "".join(f"<li>{escape(each)}</li>" for each in items)


def _choice_items(terms: Assumptions) -> list[str]:
    """Return the sentences on adapters and on the cache in host memory, where there are any."""
    found = []
    if terms.lora_adapters:
        found.append(f"{counted(terms.lora_adapters, 'LoRA adapter')} of rank {terms.lora_rank:,} in memory, modelled.")
    if terms.draft_tokens:
        who = (
            "prediction layers of its own"
            if terms.draft_model is None
            else f"{terms.draft_model.name} in {terms.draft_bits} bits"
        )
        words = f"{counted(terms.draft_tokens, 'draft token')} per step by {who}"
        found.append(f"{words}; a step gives {plain(terms.tokens_per_step)} tokens, modelled.")
    if terms.prefix_hit_rate * terms.host_hit_share:
        share = percent(terms.host_hit_share, 0)
        found.append(f"{share} of the hits are in host memory: loaded, or computed where that is faster; modelled.")
    return found


def _table_markup(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f"<th>{escape(text)}</th>" for text in headers)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table class="ss-rows"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )
