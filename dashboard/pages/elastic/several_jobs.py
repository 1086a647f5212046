"""Several jobs on one cluster: an equal split of its GPUs, the scheduler's, and the best that keeps guarantees."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic import resource_curve
from dashboard.charts.plans.elastic_overlays import overlaid_sensitivities
from dashboard.charts.plans.elastic_sharing import WAYS, split_bars
from dashboard.link.catalogue import model_of, named_model, named_system, system_of, usable_models
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.named_things import quoted, unquoted
from dashboard.pages.elastic.answers import answer_later, find_split
from dashboard.pages.elastic.bases import of_cards, of_models
from dashboard.pages.elastic.cards import ChosenCard, card_titles, find_card, parse_own_card
from dashboard.pages.elastic.library_model import parse_system
from dashboard.pages.elastic.link import OWN, PAGE_NAME, SeveralJobsLink
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_text, draw_whole
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain
from engine.planners.contract import PlanError
from engine.planners.elastic import Split
from engine.planners.elastic.plan_names import with_plan_titles
from engine.planners.elastic.resource_curve import KEEP_SMALLER
from engine.questions.documents.elastic import JobDocument, SplitQuestion
from models import Model
from models.documents import did_you_mean

__all__ = ["SeveralJobsView", "draw_jobs", "parse_jobs"]

EXAMPLES: Final = {"cards": "roberta, t5_3B", "models": "llama-3-8B*64, llama-2-13B*32"}
MOST_JOBS: Final = 8
MOST_GPUS: Final = 64
_TEXT: Final = re.compile(r"[^\x00-\x1f]{1,400}")
_PARTS: Final = re.compile(r'(?:"(?:[^"]|"")*"|[^,"]|")+?(?=,|$)')
_JOB: Final = re.compile(
    r'("(?:[^"]|"")+"|[^\s,*="](?:[^,*="]*[^\s,*="])?)(?:\*([0-9]{1,7}))?(?:\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,6})?))?'
)
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


@dataclass(frozen=True, slots=True)
class SeveralJobsView:
    """Part of the link about jobs that share GPUs."""

    mode: str
    fields: Mapping[str, LinkField]
    question: SplitQuestion | None
    basis: str
    """Basis of the throughputs, as a sentence."""
    problem: str = ""
    """Sentence about jobs that are not understood."""


def parse_jobs(mode: str) -> SeveralJobsView:
    """Parse this part of the link. mode: "light" or "dark"."""
    page, asked = LinkReader(SeveralJobsLink, PAGE_NAME), LinkReader(SplitQuestion, PAGE_NAME)
    kind = page.read("of")
    text = page.read("jobs", default=EXAMPLES[kind], pattern=_TEXT)
    page.read("curve", pattern=_TEXT)
    gpus = asked.read("gpus", default=4 if kind == "cards" else 32, most=MOST_GPUS)
    system, is_measured = "", False
    if kind == "cards":
        is_measured = asked.read("basis", default="measured") == "measured"
        asked.read("variant")
    else:
        system = parse_system(asked)
    fields = {**page.fields, **asked.fields}
    try:
        jobs = _read_jobs(text)
        if kind == "cards":
            cards = _cards_of_jobs(jobs)
            basis = of_cards([card for card, _ in cards], fields["variant"].value, is_measured)
            made = [JobDocument(**card.arguments, guarantee=guarantee) for card, guarantee in cards]
            return SeveralJobsView(mode, fields, asked.build(jobs=made), basis)
        made, models = _jobs_of_models(jobs)
        question = asked.build(jobs=made, system=named_system(system), basis="predicted")
        return SeveralJobsView(mode, fields, question, of_models(models, system_of(system), gpus))
    except ValueError as problem:
        return SeveralJobsView(mode, fields, None, "", str(problem))


def draw_jobs(view: SeveralJobsView) -> None:
    """Draw jobs that share GPUs.

    Raises `engine.planners.contract.PlanError` for input that cannot be read, or if no split keeps the guarantees.
    """
    _draw_inputs(view.fields)
    asked, mode, basis = view.question, view.mode, view.basis
    if asked is None:
        raise PlanError(view.problem)
    found: object
    if asked.system is None:
        found = find_split(asked)
    else:
        about = f"{len(asked.jobs)} jobs on {asked.gpus} GPUs"
        found = answer_later(asked, "Curves of all jobs", about)
    if not isinstance(found, Split):
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
        st.html(markup.head("Gain of one more GPU", "the curves used for the best split"))
        names = {"all": "All jobs", **{str(number): name for number, name in enumerate(found.curves, 1)}}
        chosen = view.fields["curve"].among(names)
        draw_choice(chosen, width=230)
        job = chosen.value
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


def _draw_inputs(fields: Mapping[str, LinkField]) -> None:
    kind = fields["of"].value
    known = "Names are those of the library."
    if kind == "cards":
        known = f"Cards: {', '.join(map(quoted, card_titles()))}; own is yours of this page."
    form = "Cards" if kind == "cards" else "Models * batch"
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_segments(fields["of"], resets=("elastic_jobs", "elastic_curve"))
        draw_text(
            fields["jobs"],
            label=f"{form}, with = samples/s that are guaranteed",
            most=400,
            width=400,
            help=f"Separated by commas. t5=40 is a job that must reach 40 samples/s. {known}",
        )
        draw_whole(fields["gpus"], help="That all of the jobs share.")
        for name in ("basis", "variant"):
            if name in fields:
                draw_segments(fields[name])
        if "system" in fields:
            draw_choice(fields["system"], help="", width=190)


def _read_jobs(text: str) -> list[tuple[str, int | None, float | None]]:
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


def _cards_of_jobs(jobs: list[tuple[str, int | None, float | None]]) -> list[tuple[ChosenCard, float | None]]:
    """Return the cards of jobs by name, with their guarantees."""
    known, own = list(card_titles()), parse_own_card()
    asked = []
    for name, _, guarantee in jobs:
        card = find_card(name, own)
        if card is None and name == OWN:
            raise PlanError("There is no card of yours; upload one, or change one, where one job is planned.")
        if card is None:
            raise PlanError(f"There is no card {name!r}{did_you_mean(name, known)}; there are {', '.join(known)}.")
        asked.append((card, guarantee))
    return asked


def _jobs_of_models(
    jobs: list[tuple[str, int | None, float | None]],
) -> tuple[list[JobDocument], list[tuple[Model, int]]]:
    """Return jobs of library models by name, and their models with batches."""
    known = usable_models()
    made, models = [], []
    for name, batch, guarantee in jobs:
        if name not in known:
            raise PlanError(f"There is no model {name!r} in the library{did_you_mean(name, known)}.")
        if not batch:
            raise PlanError(f"The job {name!r} has no batch; write {quoted(name)}*64 for 64 samples of a step.")
        made.append(JobDocument(model=named_model(name), global_batch=batch, name=name, guarantee=guarantee))
        models.append((model_of(name), batch))
    return made, models


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
