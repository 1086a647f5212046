"""The Calibrate page: fits a system's calibration to measured runs and shows the changes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.accuracy.calibration import before_and_after, parameters_moved
from dashboard.charts.elements import markup
from dashboard.link import state
from dashboard.link.document_validation import Refused, sentence
from dashboard.pages.calibrate import queries as data
from dashboard.pages.calibrate import tables
from dashboard.pages.calibrate.ranking import ranking
from dashboard.pages.calibrate.use import offer
from dashboard.widgets.chart import show
from dashboard.widgets.controls import choose, given, key_for
from dashboard.widgets.upload import files_field
from dashboard.words.markdown import literal
from dashboard.words.numbers import percent, signed_percent
from engine import calibrate
from engine.calibrate import CalibrateError, CalibrationOutcome, parameters_of
from hardware import Calibration, CalibrationFileError

__all__ = ["CalibrateView", "parse", "render"]

MOST_MEGABYTES: Final = data.MOST_BYTES // 1_000_000
UNSEEN: Final = "left out of the fit"
FITTED: Final = "the fitted runs"
_PARAMETERS: Final = "calibrate_parameters"
"""Link parameter with the names of the fitted parameters; reset when other runs are chosen."""
_NAMES: Final = re.compile(r"[a-z0-9_]+(?:-[a-z0-9_]+){0,5}")


@dataclass(frozen=True, slots=True)
class CalibrateView:
    """The page's part of the link."""

    mode: str
    """The theme: "light" or "dark"."""
    parameters: tuple[str, ...]
    """Names of the parameters to fit. Empty: those suggested by the runs."""


def parse() -> CalibrateView:
    """Reads the page's part of the link."""
    names = state.url_value(_PARAMETERS, "", _NAMES)
    return CalibrateView(state.theme_mode(), tuple(names.split("-")) if names else ())


def render(view: CalibrateView) -> None:
    """Draws the page."""
    mode = view.mode
    bar = st.container(horizontal=True, gap="small", vertical_alignment="bottom")
    try:
        prepared = _choose_runs(bar)
    except Refused as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    names = _choose_parameters(prepared, bar, view.parameters)
    outcome: CalibrationOutcome | None = None
    if prepared.checked.accepted.any():
        try:
            outcome = data.outcome_of(prepared, names)
        except Refused as problem:
            st.error(literal(str(problem)), icon=":material/error:")
    _draw_strip(prepared, outcome)
    if outcome is None:
        st.warning("None of these runs can be used, so nothing is fitted; the table says why.", icon=":material/rule:")
        tables.runs(prepared.checked, None)
        return
    _draw_verdict(outcome, prepared)
    left, right = st.columns([1.45, 1], gap="medium")
    with left:
        st.html(markup.head("Predicted against measured, before and after", "step time; one line per run"))
        after = UNSEEN if outcome.errors_unseen is not None else FITTED
        show(before_and_after(_chart_rows(outcome), after, mode), "calibrate_errors")
    with right.container(border=True, gap="xsmall"):
        st.html(markup.head("What the fit changes", "90 % ranges, over the value before"))
        show(parameters_moved(tables.moved(outcome.estimates), mode), "calibrate_moved")
        offer(outcome, f"{prepared.key}-{'-'.join(item.about.name for item in outcome.estimates)}")
    tables.parameters(outcome)
    tables.runs(prepared.checked, outcome)
    ranking(outcome)


def _choose_runs(bar: Any) -> data.PreparedRuns:
    """Draw the choice of runs and return them: uploaded ones, or an example. Raises `Refused`."""
    examples, systems, bases = data.examples(), data.systems(), data.bases()
    with bar.popover("Bring runs", icon=":material/upload_file:", help="Measured runs of your own cluster."):
        files, given = _draw_upload()
    with bar:
        if files:
            now = state.current_scenario().system.name
            options = {name: f"{system.title or name} · {name}" for name, system in sorted(systems.items())}
            name = choose(
                "System of the runs",
                options,
                "calibrate_system",
                width=400,
                default=now if now in options else "h100_80g_sxm",
                gone=(_PARAMETERS,),
            )
        else:
            labels = {key: example.label for key, example in examples.items()}
            key = choose("Example runs, published", labels, "calibrate_example", width=400, gone=(_PARAMETERS,))
        start = choose(
            "Start from",
            {name: _calibration_title(base) for name, base in bases.items()},
            "calibrate_base",
            width=214,
            help="Starting values of the fit; it changes them only if the runs demand it.",
        )
    base = bases[start]
    try:
        parameters_of(base)
        if not files:
            return data.prepared_example(key, base)
        fields = calibrate.parse_given(given.replace(",", " ").split())
    except (CalibrateError, CalibrationFileError) as problem:
        raise Refused(sentence(problem)) from None
    contents = {
        f"{place} {file.name}" if len(files) > 1 else file.name: file.getvalue() for place, file in enumerate(files, 1)
    }
    return data.prepared_upload(contents, systems[name], fields, base)


def _calibration_title(base: Calibration) -> str:
    """Return the calibration's title in the list of starting points."""
    return "The library's" if base.name == "global" else base.title or base.name


def _draw_upload() -> tuple[list[Any], str]:
    """Draw the template and the upload; return the uploaded files and the values for missing fields."""
    st.caption(
        f"A CSV file with the columns of the template, or logs of Megatron-LM, NeMo, Megatron-Bridge or torchtitan "
        f"with the arguments that they print, one run per log; up to {MOST_MEGABYTES} MB and "
        f"{calibrate.MOST_RUNS:,} runs. Files stay on this server while this page is open."
    )
    st.download_button(
        "Template",
        calibrate.template(),
        file_name="runs-template.csv",
        mime="text/csv",
        key="calibrate_template",
        icon=":material/download:",
        help="A table to fill in: a header and one example row.",
    )
    files = files_field("Measured runs", ["csv", "log", "txt", "out"], "calibrate_upload", MOST_MEGABYTES)
    given = st.text_input(
        "For missing fields",
        key="calibrate_given",
        placeholder="vocab=128256 dtype=bf16",
        max_chars=400,
        help="Fields for all runs that lack them, as FIELD=VALUE with spaces between.",
    )
    tables.template_fields(dict(calibrate.FIELDS))
    return list(files or []), str(given or "")


def _choose_parameters(prepared: data.PreparedRuns, bar: Any, wanted: tuple[str, ...]) -> tuple[str, ...] | None:
    """Draw the choice of parameters and return their names; None: those suggested by the runs."""
    labels = tables.offered(prepared.checked, parameters_of(prepared.base))
    known = tuple(name for name in wanted if name in labels)
    strange = [name[:40] for name in wanted if name not in labels]
    if strange:
        named = ", ".join(strange[:3])
        sentence = f"The link's parameters to fit name {named}, which these runs cannot determine; left out."
        state.complain(_PARAMETERS, sentence)
    key = key_for(f"_calibrate_parameters_{prepared.checked.system.name}", list(known))

    def changed() -> None:
        state.set_url_value(_PARAMETERS, "-".join(given(key)) or None)

    with bar:
        st.multiselect(
            "Parameters to fit",
            list(labels),
            list(known),
            format_func=lambda name: labels[name],
            key=key,
            on_change=changed,
            placeholder="the best-determined ones",
            width=400,
            max_selections=calibrate.MOST_PARAMETERS,
            help="Parameters to fit (1 to 6). Empty: the best-determined three to six.",
        )
    return known or None


def _draw_strip(prepared: data.PreparedRuns, outcome: CalibrationOutcome | None) -> None:
    """Draw the headline figures."""
    checked = prepared.checked
    refused = int((~checked.accepted).sum())
    used = f"{int(checked.accepted.sum()):,} of {len(checked.labels):,}"
    tiles = [markup.Tile("Runs used", used, f"{refused:,} refused" if refused else "none refused")]
    if outcome is not None:
        before, unseen, fitted = outcome.errors_before, outcome.errors_unseen, outcome.errors_after
        seen = "the library has seen them" if outcome.known else "not fitted"
        tone = "" if outcome.helps is None else "better" if outcome.helps else "worse"
        tiles += [
            markup.Tile(
                "Mean error before", percent(before["mean"] / 100), seen, formula="mean of |predicted / measured − 1|"
            ),
            markup.Tile(
                "Mean error, unseen",
                "–" if unseen is None else percent(unseen["mean"] / 100),
                "too few runs" if unseen is None else f"{outcome.held_out.folds} parts left out in turn",
                tone,
                formula="each run predicted by a fit that left it out",
            ),
            markup.Tile("Mean error, fitted", percent(fitted["mean"] / 100), "runs that it was fitted to"),
            markup.Tile("Bias before", signed_percent(before["bias"] / 100), "of the step time, median"),
            markup.Tile(
                "Bias, unseen" if unseen is not None else "Bias, fitted",
                signed_percent((unseen or fitted)["bias"] / 100),
                "of the step time, median",
            ),
            markup.Tile("Parameters fitted", f"{len(outcome.estimates)}", f"{outcome.configurations:,} configurations"),
        ]
    st.html(markup.figure_strip(tiles))


def _draw_verdict(outcome: CalibrationOutcome, prepared: data.PreparedRuns) -> None:
    """Draw the verdict on the fit, and the refused runs."""
    told = literal(outcome.verdict)
    if outcome.helps is None:
        st.info(told, icon=":material/info:")
    elif outcome.helps:
        st.caption(told)
    else:
        st.warning(told, icon=":material/warning:")
    if not prepared.checked.accepted.all():
        refused = np.flatnonzero(~prepared.checked.accepted)
        checked = prepared.checked
        first = " ".join(f"{_capitalise_label(checked.labels[row])}: {checked.reason_text[row]}" for row in refused[:2])
        more = f" {len(refused) - 2:,} more are in the table below." if len(refused) > 2 else ""
        many = "1 run is refused." if len(refused) == 1 else f"{len(refused):,} runs are refused."
        st.warning(f"{many} {literal(first[:500])}{more}", icon=":material/rule:")


def _capitalise_label(label: str) -> str:
    """Return a run's label for the beginning of a sentence: "Row 3", but names of files unchanged."""
    return label.replace("row ", "Row ", 1) if label.startswith("row ") else label


def _chart_rows(outcome: CalibrationOutcome) -> pd.DataFrame:
    """Return the accepted runs as rows of the chart."""
    checked = outcome.checked
    accepted = checked.accepted
    after = outcome.predicted_after if outcome.errors_unseen is None else outcome.predicted_unseen
    rows = pd.DataFrame(
        {
            "row": np.arange(1, len(accepted) + 1),
            "label": list(checked.labels),
            "model": checked.table["model"],
            "measured": checked.measured,
            "before": outcome.predicted_before / checked.measured - 1,
            "after": after / checked.measured - 1,
        }
    )
    found: pd.DataFrame = rows[accepted].reset_index(drop=True)
    return found
