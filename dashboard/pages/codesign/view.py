"""The Co-design page: a study in a sentence, its run, designs as fronts and maps, and one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.what_if.codesign import written
from dashboard.charts.what_if.codesign_choices import choices_map
from dashboard.compat.caches import remembered
from dashboard.files.codesign_report import binding_table, titles_of, with_errors
from dashboard.jobs.board import BoardFull
from dashboard.jobs.codesign_studies import CodesignJob, StudyTimesJob
from dashboard.jobs.server import server
from dashboard.link import page_links, state
from dashboard.link.fields import LinkField
from dashboard.pages.codesign import narrowing
from dashboard.pages.codesign.downloads import downloads
from dashboard.pages.codesign.inputs import NUMBER, CodesignView, DesignAnswers, parameter_title, parse
from dashboard.pages.codesign.studies import draw_study, editor, keeper, sentence, share
from dashboard.pages.codesign.worth import worth_of_more
from dashboard.queries.design_accuracy import MOST_TOLD, basis_of, error_told, optimum
from dashboard.queries.design_phrases import phrases
from dashboard.widgets import uncertainty
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.job_card import rerun_after_end, watch
from dashboard.widgets.link_fields import draw_choice, draw_segments
from dashboard.widgets.tables import height_of
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from dashboard.words.studies import binding_sentences, refused_words
from engine.codesign import QUANTITIES, Estimate, PointTime, Study, StudyError, estimate
from engine.codesign.answers import in_words

__all__ = ["CodesignView", "parse", "render"]

LOOK_AGAIN: Final = 2.0
"""Seconds between two checks for new points of a running search."""
PATIENCE: Final = 0.5
"""Longest wait for timed points before a guess is shown [s]."""
SHOWN: Final = 500
"""Most rows of a table; files have all."""


def render(view: CodesignView) -> None:
    """Draws the page."""
    try:
        _draw_page(view)
    except ValueError as problem:  # a StudyError, or of a model or a system
        st.error(literal(str(problem)), icon=":material/error:")


def _draw_page(view: CodesignView) -> None:
    study, found = view.study, view.found
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_study(view.fields["study"])
        if study is None:
            raise StudyError(view.problem)
        editor(study)
        share(study, view.parameters)
        keeper(study)
    st.html(markup.head(study.document.name or "Study", study.document.description))
    sentence(study, _phrase_words(study))
    if view.damaged:
        st.warning(literal(f"{view.damaged} Search the designs below does so."), icon=":material/healing:")
    complete = found is not None and found.complete
    expected = _estimate_study(study.key, study) if complete else _expected_run(study)
    st.markdown(literal(f"{expected.counts}." if complete else expected.sentence))
    if not complete:
        _draw_run(view, study, expected)
    if found is None:
        return
    asked = view.asked
    _draw_question(view.fields, asked)
    if asked is None:
        raise StudyError(view.problem)
    _draw_strip(asked)
    narrowing.line(found.study, asked.question, asked.designs)
    left, right = st.columns([5, 3], gap="medium")
    with left, st.container(border=True, key="codesign_picture_card"):
        _draw_picture(view, asked)
    with right, st.container(border=True, key="codesign_design_card"):
        _draw_design(asked)
    _draw_constraints(asked)
    if asked.chosen is not None:
        worth_of_more(found, asked.question, asked.chosen, view.fields["worth"])
    _draw_tables(view, asked, study)


def _draw_question(fields: Mapping[str, LinkField], asked: DesignAnswers | None) -> None:
    """Draw the question about the designs."""
    widths = {"up": 260, "across": 260, "of": 220, "at": 200}
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom", key="codesign_asked"):
        for name, width in widths.items():
            if name in fields:
                draw_choice(fields[name], help="", width=width)
        if asked is not None:
            narrowing.menu(asked.found, asked.question, asked.designs)


def _phrase_words(study: Study) -> dict[str, str]:
    """Return the text of each part of the study's sentence."""
    said = study.document
    models = ", ".join(
        f"{model.title or model.name}{f' (weight {each.weight:g})' if len(study.models) > 1 else ''}"
        for model, each in zip(study.models, said.models, strict=True)
    )
    systems = " or ".join(system.title or system.name for system in study.systems)
    edits = "; ".join(
        f"{' with '.join(parameter_title(study, name) for name in edit.names)} at {counted(len(edit.rows), 'value')}"
        for edit in said.edits
    )
    sizes = f"{said.sizes[0]:,}" if len(said.sizes) == 1 else f"{min(said.sizes):,} to {max(said.sizes):,}"
    batches = " or ".join(
        counted(rule.samples, "sample")
        if rule.samples is not None
        else f"{rule.per_processor:g} sample{'' if rule.per_processor == 1 else 's'} per processor"
        for rule in said.batches
    )
    labels = [QUANTITIES[name].label.lower() for name in said.objectives]
    bounds = " and ".join(in_words(each) for each in said.constraints)
    return {
        "models": models,
        "sizes": sizes,
        "systems": systems,
        "datatypes": " or ".join(said.datatypes),
        "batches": batches,
        "edits": edits or "nothing",
        "objectives": " and ".join(labels),
        "constraints": bounds or "no constraints apply",
    }


def _study_sentence(study: Study) -> str:
    """Return the study in a sentence, with the number of its points and their time."""
    words = _phrase_words(study)
    said = " ".join(f"{each.before} {words[each.name]}" for each in phrases(study))
    return f"{said}: {_estimate_study(study.key, study).counts}."


@remembered(64)
def _estimate_study(key: str, _study: Study, times: Sequence[PointTime] = ()) -> Estimate:
    return estimate(_study, 1, times)


def _expected_run(study: Study) -> Estimate:
    """Return the counts and the time of a study from a few points timed in the background; a guess until then."""
    shared, watcher = server(), state.watcher()
    searching = shared.board.find(shared.codesign_studies, study.key)
    job = shared.board.find(shared.study_times, study.key)
    if job is None and (searching is None or searching.ended):
        with suppress(BoardFull):
            job = shared.board.post(StudyTimesJob(shared.study_times, study), watcher)
    if isinstance(job, StudyTimesJob) and not job.ended and not job.wait(PATIENCE):
        st.fragment(_until_timed, run_every=LOOK_AGAIN)(job)
    return _estimate_study(study.key, study, job.times if isinstance(job, StudyTimesJob) else ())


def _until_timed(job: StudyTimesJob) -> None:
    if job.ended:
        st.rerun()


def _draw_run(view: CodesignView, study: Study, expected: Estimate) -> None:
    """Draw the running search, or the button that starts one."""
    shared, watcher, there = server(), state.watcher(), view.found
    job = shared.board.seen(shared.codesign_studies, study.key, watcher)
    if isinstance(job, CodesignJob) and not job.ended:
        watch(job, watcher)
        st.fragment(_until_more, run_every=LOOK_AGAIN)(job, 0 if there is None else len(there.rows))
        return
    if isinstance(job, CodesignJob):
        rerun_after_end(job)  # its last points may be newer than those that the page has read
    longest = shared.settings.longest_seconds
    if (expected.seconds if expected.timed else expected.seconds_low) > longest:
        told = f"It takes longer than the {longest:,.0f} s that this server allows for a search."
        st.info(f"{told} Run it with shardscape codesign, on as many machines as you like.", icon=":material/block:")
        return
    if isinstance(job, CodesignJob) and job.state == "failed":
        st.error(literal(job.problem), icon=":material/error:")
    word = "Search the designs"
    if there is not None:
        word = f"Continue: {len(there.rows):,} of {study.points:,} points are computed"
    if was_clicked(word, type="primary", icon=":material/play_arrow:", key="codesign_run"):
        if job is not None:
            shared.board.forget(job)
        about = study.document.name or counted(study.points, "point")
        pace = expected.point_seconds if expected.timed else None
        shared.board.post(CodesignJob(shared.codesign_studies, study, view.folder, about, pace), watcher)
        st.rerun()


def _until_more(job: CodesignJob, shown: int) -> None:
    """Rerun the page when a quarter more points are there than it shows.

    Often at first, when a picture of few points changes most; seldom when each takes longer to draw.
    """
    if not job.ended and job.progress is not None and job.progress.done > 1.25 * shown:
        st.rerun()


def _draw_strip(asked: DesignAnswers) -> None:
    found, counts = asked.found, asked.designs["status"].value_counts()
    skipped = int(counts.get("skipped", 0))
    tiles = []
    best = asked.found.best(asked.up.name, of=asked.of, at=asked.question.at)
    if best is not None:
        error = error_told(found, int(best[NUMBER]), asked.up, asked.of)
        value = f"{plain(float(best[asked.up.name]), 4)} {asked.up.unit}"
        tiles.append(markup.Tile(f"Best {asked.up.label.lower()}", value, f"design {best[NUMBER]:,}", error=error))
    runs, left_out = int(counts.get("ok", 0)), f"; {skipped:,} skipped" if skipped else ""
    binding = asked.question.binding(found)
    if binding is None:
        tiles.append(markup.Tile("Designs that run", f"{runs:,}", f"of {len(asked.designs):,}{left_out}"))
    else:
        refused = refused_words(found, binding) or "none refused"
        idle = len(asked.designs) - runs - skipped
        still = f"; {idle:,} do not run" if idle else ""
        tiles.append(
            markup.Tile(
                "Allowed designs", f"{binding.allowed:,}", f"of {len(asked.designs):,}; {refused}{still}{left_out}"
            )
        )
    if asked.question.across is not None:
        tiles.append(markup.Tile("On the front", f"{len(asked.front):,}", _describe_objectives(asked)))
    tiles.append(markup.Tile("Points", f"{len(found.rows):,}", f"{len(found.rows):,} of {found.study.points:,}"))
    st.html(markup.figure_strip(tiles, basis_of(found, asked.front[NUMBER].tolist()[:MOST_TOLD], asked.of)))
    st.caption("Figures of the fastest execution of each design.")
    if not found.complete:
        st.markdown(f"Answers cover the {counted(len(asked.designs), 'design')} searched so far.")


def _describe_objectives(asked: DesignAnswers) -> str:
    """Return the objectives in words."""
    across = asked.question.across
    return f"in {asked.up.label.lower()}{f' and {across.label.lower()}' if across is not None else ''}"


def _draw_picture(view: CodesignView, asked: DesignAnswers) -> None:
    question, fields, mode = asked.question, view.fields, view.mode
    draw_segments(fields["picture"])
    shown = fields["picture"].value
    if free := question.free(asked.found):
        st.caption(literal(free))
    if shown == "front":
        brushes = {"x": question.across.name if question.across is not None else question.choice, "y": asked.up.name}
        if brushes["x"] in ("system", "datatype"):  # whose order on the axis differs from the study's
            del brushes["x"]
        show(
            question.picture(asked.found, asked.designs, asked.front, asked.chosen, mode),
            "codesign_front",
            on_click=_pick_design,
            brushes={} if is_narrow() else brushes,
            on_brush=narrowing.on_brush("codesign_front", asked.found, question, asked.designs),
        )
        if question.across is None:
            edge = "most" if asked.up.better == "higher" else "least"
            st.caption(
                f"Only the best was searched. Hollow marks are skipped designs, drawn at the {edge} that bounds allow; "
                "the best at a value is proven only if no hollow mark is better."
            )
    elif shown == "parallel":
        show(
            question.parallel(asked.found, asked.designs, mode),
            "codesign_parallel",
            on_brush=narrowing.on_brush("codesign_parallel", asked.found, question, asked.designs),
        )
    elif len(asked.names) < 2:
        st.markdown("A map needs two choices that differ between designs.")
    else:
        with st.container(horizontal=True, gap="small"):
            draw_choice(fields["x"], width=240)
            draw_choice(fields["y"], width=240)
        across, up = fields["x"].value, fields["y"].value
        skipped = asked.found.skipped(asked.of, asked.question.at)
        show(
            choices_map(
                asked.designs,
                skipped,
                (across, asked.names[across]),
                (up, asked.names[up]),
                asked.up,
                mode,
                is_narrow(),
            ),
            "codesign_map",
        )
        if len(skipped):
            st.caption(
                "A number with a sign is the bound of a cell whose designs were all skipped. Only the best of "
                "all is proven, not the best of every cell: hover over a cell for its bound."
            )


def _pick_design() -> None:
    if found := clicked("codesign_front"):
        state.set_url_value("codesign_design", str(int(found[0])))


def _draw_design(asked: DesignAnswers) -> None:
    """Draw one design: its choices, its figures, and links to other pages."""
    number = asked.chosen
    if number is None:
        st.markdown("No design meets all constraints.")
        return
    row = asked.designs[asked.designs[NUMBER] == number].iloc[0]
    on = number in set(asked.front[NUMBER])
    skipped = row["status"] == "skipped"
    standing = "skipped: bounds prove it is not best" if skipped else "on the front" if on else "not on the front"
    if row.get("refused"):
        standing = f"refused by {row['refused']}"
    if row["status"] not in ("ok", "skipped"):
        standing = "does not run"
    st.html(markup.head(f"Design {number}", standing))
    st.html(markup.facts([(label, written(row[name])) for name, label in asked.names.items()]))
    figures = [one for name, one in QUANTITIES.items() if name in row and pd.notna(row[name])]
    st.dataframe(
        pd.DataFrame(
            {
                "Figure": [one.label for one in figures],
                "Value": [plain(float(row[one.name]), 4) for one in figures],
                "Unit": [one.unit for one in figures],
            }
        ),
        hide_index=True,
        height=height_of(len(figures), 300),
        key="codesign_figures",
        alt=f"Figures of design {number}.",
    )
    study = asked.found.study
    names = [model.name for model in study.models]
    which = names.index(asked.of) if asked.of in names else 0
    scenario = asked.found.scenario(number * len(names) + which)
    if (best := optimum(asked.found, number, which)) is not None:
        uncertainty.popover(*best, "codesign_accuracy")
    with st.container(horizontal=True, gap="small"):
        for page, word, icon in (("explore", "Explore it", "grid_view"), ("whatif", "Open in What-if", "tune")):
            told = f"With {study.models[which].title or names[which]}."
            if page_links.exists(page) and was_clicked(
                word, key=f"codesign_{page}", icon=f":material/{icon}:", help=told
            ):
                parameters = state.before_switching(lambda: state.open_scenario(scenario))
                st.switch_page(page_links.target(page), query_params=parameters)


def _draw_tables(view: CodesignView, asked: DesignAnswers, study: Study) -> None:
    found, question = asked.found, asked.question
    across = question.across
    columns = [NUMBER, *asked.names, asked.up.name, *([across.name] if across is not None else [])]
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            title = "Front" if across is not None else "The best design"
            among = "; filtered" if question.stretches else ""
            st.html(markup.head(title, f"{_describe_objectives(asked)}{among}"))
            downloads(study, found, question, _study_sentence(study), asked.chosen, view.parameters)
        _draw_designs(question.kept(study, asked.front), columns, asked, "codesign_front_table", f"{title}.")
    if question.stretches:
        kept = question.kept(study, asked.designs)
        kept = kept[kept["status"] == "ok"].sort_values(
            asked.up.name, ascending=asked.up.better == "lower", kind="stable"
        )
        with st.container(border=True):
            st.html(markup.head("Filtered designs", "the best first"))
            more = ["refused"] if "refused" in kept else []
            _draw_designs(kept, [*columns, *more], asked, "codesign_kept_table", "Filtered designs, the best first.")
    if across is not None and across.better == "lower" and asked.up.better == "higher":
        steps = found.best_per_budget(budget=across.name, objective=asked.up.name, of=asked.of, at=question.at)
        with st.container(border=True):
            st.html(
                markup.head("Best design per budget", f"each {across.label.lower()} at which the best design changes")
            )
            _draw_designs(
                _marginal_gains(steps, asked.up.name),
                ["budget", *columns, "more per unit"],
                asked,
                "codesign_budget_table",
                "The best design above each budget.",
            )


def _draw_constraints(asked: DesignAnswers) -> None:
    """Draw which constraints bind and how many designs each refuses; nothing without constraints."""
    report = asked.question.binding(asked.found)
    if report is None:
        return
    table = binding_table(report, asked.up)
    digits = {
        str(name): [float(f"{value:.4g}") for value in table[name]] for name in table if table[name].dtype.kind == "f"
    }
    formats = {name: st.column_config.NumberColumn(format="localized") for name in digits}
    with st.container(border=True, key="codesign_constraints"):
        among = "searched designs" if asked.found.study.document.prune else "designs"
        st.html(markup.head("Constraints", f"{report.refused:,} of {report.running:,} {among} that run are refused"))
        st.markdown(literal(" ".join(binding_sentences(report))))
        st.dataframe(
            table.assign(**digits),
            hide_index=True,
            column_config=formats,
            placeholder="\N{EN DASH}",
            key="codesign_binding",
            alt="Slack of the best design in each constraint, designs that each refuses, and the gain without it.",
        )


def _marginal_gains(steps: pd.DataFrame, up: str) -> pd.DataFrame:
    """Return the budgets with the gain per unit of budget since the previous one."""
    more = steps[up].diff() / steps["budget"].diff()
    return steps.assign(**{"more per unit": more})


def _draw_designs(table: pd.DataFrame, columns: Sequence[str], asked: DesignAnswers, key: str, alt: str) -> None:
    unit = asked.question.across.unit if asked.question.across is not None else ""
    titles = {
        **asked.names,
        NUMBER: "Design",
        "budget": f"Budget [{unit}]",
        **titles_of(asked.question),
        "refused": "Refused by",
        "more per unit": f"More {asked.up.unit} per {unit or 'one'}",
    }
    kept: Any = with_errors(asked.found, table.head(SHOWN)[list(dict.fromkeys(columns))], asked.question).copy()
    for name in kept:
        if kept[name].dtype.kind == "f":
            kept[name] = [float(f"{value:.5g}") for value in kept[name]]
    formats = {
        titles[name]: st.column_config.NumberColumn(format="localized") for name in kept if kept[name].dtype.kind == "f"
    }
    st.dataframe(
        kept.rename(columns=titles),
        hide_index=True,
        column_config=formats,
        height=height_of(len(kept), 320),
        placeholder="–",
        key=key,
        alt=alt,
    )
