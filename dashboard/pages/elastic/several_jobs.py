"""Several jobs on one cluster: an equal split of its GPUs, the scheduler's, and the best that keeps guarantees."""

from __future__ import annotations

import re
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic import resource_curve
from dashboard.charts.plans.elastic_overlays import overlaid_sensitivities
from dashboard.charts.plans.elastic_sharing import WAYS, split_bars
from dashboard.compat.caches import remembered
from dashboard.jobs.elastic_plans import SharedCluster, SharedClusterQuestion
from dashboard.link import state
from dashboard.link.catalogue import model_of, system_of, usable_models
from dashboard.link.named_things import quoted, unquoted
from dashboard.pages.elastic.answers import answered
from dashboard.pages.elastic.bases import of_cards, of_models
from dashboard.pages.elastic.cards import OWN, ChosenCard, card_of, card_titles
from dashboard.pages.elastic.library_model import asked_system
from dashboard.pages.elastic.one_job import VARIANTS
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.controls import choose, given, key_for, segments
from dashboard.widgets.link_numbers import whole_in_link
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain
from engine.planners import elastic
from engine.planners.contract import PlanError
from engine.planners.elastic import Split
from engine.planners.elastic.plan_names import with_plan_titles
from engine.planners.elastic.resource_curve import KEEP_SMALLER
from models import Model
from models.documents import did_you_mean

__all__ = ["several_jobs"]

OF: Final = {"cards": "Model cards", "models": "Library models"}
EXAMPLES: Final = {"cards": "roberta, t5_3B", "models": "llama-3-8B*64, llama-2-13B*32"}
MOST_JOBS: Final = 8
MOST_GPUS: Final = 64
_TEXT: Final = re.compile(r"[^\x00-\x1f]{1,400}")
_PARTS: Final = re.compile(r'(?:"(?:[^"]|"")*"|[^,"]|")+?(?=,|$)')
_JOB: Final = re.compile(
    r'("(?:[^"]|"")+"|[^\s,*="](?:[^,*="]*[^\s,*="])?)(?:\*([0-9]{1,7}))?(?:\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,6})?))?'
)
_BASES: Final = {"measured": "Measured", "predicted": "Predicted"}
_TABLE: Final = {
    "way": "way",
    "job": "job",
    "gpus": "GPUs",
    "plan": "plan",
    "throughput": "samples/s",
    "iteration_s": "iteration, s",
    "normalised": "over alone",
    "kept": "guarantee kept",
}


def several_jobs(mode: str) -> None:
    """Draws jobs that share GPUs.

    Args:
        mode: "light" or "dark".

    Raises `engine.planners.contract.PlanError` for input that cannot be read, or if no split keeps the guarantees.
    """
    found, basis = _ask_split()
    if found is None:
        return
    st.html(markup.figure_strip(_split_tiles(found), basis))
    for note in found.notes:
        st.markdown(literal(note))
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Throughput of each split", f"by {found.basis} times; the best split keeps all guarantees"))
        chart = split_bars(with_plan_titles(found.table), mode)
        show(chart, "elastic_split")
        st.markdown(literal(chart.alt))
        shown = found.table[list(_TABLE)].assign(way=[WAYS[way] for way in found.table["way"]])
        worded(shown, _TABLE, "elastic_split_table", "Every way to split the GPUs with each job's GPUs and throughput.")
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Gain of one more GPU", "the curves on which the best split is made"))
        names = {"all": "All jobs", **{str(number): name for number, name in enumerate(found.curves, 1)}}
        job = choose("Job", names, "elastic_curve", width=230)
        if job == "all":
            every = {name: with_plan_titles(_as_curve(table)) for name, table in found.curves.items()}
            chart = overlaid_sensitivities(every, "gpus", "GPUs", mode)
        else:
            curve = with_plan_titles(_as_curve(found.curves[names[job]]))
            chart = resource_curve(curve, "gpus", "GPUs", mode, tolerance=KEEP_SMALLER)
        show(chart, "elastic_split_curve")
        st.markdown(literal(chart.alt))
    curves = pd.concat([table.assign(job=name) for name, table in found.curves.items()], ignore_index=True)
    downloads({"Splits": found.table, "Curves": curves}, "elastic_jobs")


def _ask_split() -> tuple[Split | None, str]:
    """Ask for jobs and return (their split, or None while it is computed; its basis)."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        kind = segments("Jobs", OF, "elastic_of", gone=("elastic_jobs", "elastic_curve"))
        text = _draw_jobs_field(kind)
        gpus = whole_in_link(
            "elastic_shared", "GPUs", 4 if kind == "cards" else 32, MOST_GPUS, "That all of the jobs share."
        )
        if kind == "cards":
            basis = segments("Times", _BASES, "elastic_basis", default="measured")
            variant = segments("Performance model", VARIANTS, "elastic_variant")
        else:
            system = asked_system()
    jobs = _parse_jobs(text)
    if kind == "cards":
        cards = _cards_of_jobs(tuple((name, guarantee) for name, _, guarantee in jobs))
        told = of_cards([card for card, _ in cards], variant, basis == "measured")
        return _split_gpus(cards, gpus, basis, variant), told
    return _of_models(jobs, system, gpus)


def _draw_jobs_field(kind: str) -> str:
    value = state.url_value("elastic_jobs", EXAMPLES[kind], _TEXT)
    key = key_for("_elastic_jobs", value)

    def changed() -> None:
        new = str(given(key)).strip()
        state.set_url_value("elastic_jobs", None if new in ("", EXAMPLES[kind]) else new)

    known = "Names are those of the library."
    if kind == "cards":
        known = f"Cards: {', '.join(map(quoted, card_titles()))}; own is yours of this page."
    form = "Cards" if kind == "cards" else "Models * batch"
    st.text_input(
        f"{form}, with = samples/s that are guaranteed",
        value,
        key=key,
        on_change=changed,
        max_chars=400,
        width=400,
        help=f"Separated by commas. t5=40 is a job that must reach 40 samples/s. {known}",
    )
    return value


def _parse_jobs(text: str) -> list[tuple[str, int | None, float | None]]:
    """Return (name, batch, guarantee [samples/s]) of every job."""
    parts = [part.strip() for part in _PARTS.findall(text) if part.strip()]
    if not 1 <= len(parts) <= MOST_JOBS:
        raise PlanError(f"There are {len(parts)} jobs; give 1 to {MOST_JOBS}.")
    found = []
    for part in parts:
        matched = _JOB.fullmatch(part)
        if matched is None:
            raise PlanError(f"The job {part!r} must be a name, such as t5, with =40 for a guarantee of 40 samples/s.")
        name, batch, guarantee = matched.groups()
        found.append((unquoted(name), int(batch) if batch else None, float(guarantee) if guarantee else None))
    return found


def _cards_of_jobs(jobs: tuple[tuple[str, float | None], ...]) -> tuple[tuple[ChosenCard, float | None], ...]:
    """Return the cards of jobs by name, with their guarantees."""
    known = list(card_titles())
    asked = []
    for name, guarantee in jobs:
        card = card_of(name)
        if card is None and name == OWN:
            raise PlanError("There is no card of yours; upload one, or change one, where one job is planned.")
        if card is None:
            raise PlanError(f"There is no card {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}.")
        asked.append((card, guarantee))
    return tuple(asked)


@remembered(32)
def _split_gpus(jobs: tuple[tuple[ChosenCard, float | None], ...], gpus: int, basis: str, variant: str) -> Split:
    """Return the split of GPUs between jobs of cards."""
    rows = [{"card": card.card, "measured": card.measured, "guarantee": guarantee} for card, guarantee in jobs]
    return elastic.split(rows, gpus, basis=basis, variant=variant)


def _of_models(jobs: list[tuple[str, int | None, float | None]], system: str, gpus: int) -> tuple[Split | None, str]:
    known = usable_models()
    asked: list[tuple[str, Model, int, float | None]] = []
    for name, batch, guarantee in jobs:
        if name not in known:
            raise PlanError(f"There is no model {name!r} in the library{did_you_mean(name, known)}.")
        if not batch:
            raise PlanError(f"The job {name!r} has no batch; write {quoted(name)}*64 for 64 samples of a step.")
        same = sum(each[0].split(" (")[0] == name for each in asked)
        asked.append((f"{name} ({same + 1})" if same else name, model_of(name), batch, guarantee))
    machine = system_of(system)
    question = SharedClusterQuestion(tuple(asked), machine, gpus)
    told = [(name, model.model_dump_json(), batch, guarantee) for name, model, batch, guarantee in asked]
    described = ("jobs", told, machine.model_dump_json(), gpus)
    found = answered(question, described, "Curves of all jobs", f"{len(jobs)} jobs on {gpus} GPUs")
    basis = of_models([(model, batch) for _, model, batch, _ in asked], machine, gpus)
    return (found.found if isinstance(found, SharedCluster) else None), basis


def _split_tiles(found: Split) -> list[markup.Tile]:
    totals = found.totals()
    tiles = []
    for way, total in totals.items():
        rows = found.of(str(way))
        gpus = " + ".join(str(int(number)) for number in rows["gpus"])
        broken = int((~rows["kept"]).sum())
        told = f"GPUs {gpus}" + (f"; {broken} guarantee{'s' * (broken > 1)} broken" if broken else "")
        tiles.append(markup.Tile(WAYS[str(way)], plain(float(total), 3), told, "worse" if broken else ""))
    return tiles


def _as_curve(table: pd.DataFrame) -> pd.DataFrame:
    """Return a job's curve in the columns of `engine.planners.elastic.curve`."""
    rows = table[table["gpus"] > 0]
    stored = rows["throughput"].fillna(0.0).cummax()
    return pd.DataFrame(
        {
            "gpus": rows["gpus"],
            "raw_best": rows["throughput"],
            "raw_plan": rows["plan"],
            "stored_best": stored,
            "gain": stored.diff().fillna(stored),
        }
    )
