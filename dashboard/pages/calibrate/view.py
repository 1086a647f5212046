"""The Calibrate page: fits a system's calibration to measured runs and shows the changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.accuracy.calibration import before_and_after, parameters_moved
from dashboard.charts.elements import markup
from dashboard.link import state
from dashboard.link.document_validation import Refused, sentence
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.calibrate import queries as data
from dashboard.pages.calibrate import tables
from dashboard.pages.calibrate.link import NAMES, PAGE_NAME, CalibrateLink
from dashboard.pages.calibrate.ranking import draw_ranking
from dashboard.pages.calibrate.use import draw_uses
from dashboard.widgets.chart import show
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.link_fields import draw_choice
from dashboard.widgets.upload import files_field
from dashboard.words.markdown import literal
from dashboard.words.numbers import percent, signed_percent
from engine import Scenario, calibrate
from engine.calibrate import CalibrateError, CalibrationOutcome, parameters_of
from hardware import Calibration, CalibrationFileError, System

__all__ = ["CalibrateView", "parse", "render"]

MOST_MEGABYTES: Final = data.MOST_BYTES // 1_000_000
UNSEEN: Final = "left out of the fit"
FITTED: Final = "the fitted runs"


@dataclass(frozen=True, slots=True)
class CalibrateView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    scenario: Scenario
    link: CalibrateLink
    fields: Mapping[str, LinkField]
    systems: Mapping[str, System]
    """Systems that runs may come from, by name."""
    bases: Mapping[str, Calibration]
    """Calibrations that a fit may start from, by name."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters to fit. Empty: those suggested by the runs."""
        return tuple(self.link.parameters.split("-")) if self.link.parameters else ()


def parse() -> CalibrateView:
    """Parse the page's part of the link."""
    page, scenario = LinkReader(CalibrateLink, PAGE_NAME), state.current_scenario()
    systems, bases = data.systems(), data.bases()
    names = {name: f"{system.title or system.name} · {name}" for name, system in sorted(systems.items())}
    now = scenario.system.name
    page.read("system", default=now if now in names else "h100_80g_sxm", options=names)
    labels = {key: example.label for key, example in data.examples().items()}
    page.read("example", default=next(iter(labels)), options=labels)
    page.read("base", options={name: _calibration_title(base) for name, base in bases.items()})
    page.read("parameters", pattern=NAMES)
    page.read("rank")
    return CalibrateView(state.theme_mode(), scenario, page.build(), page.fields, systems, bases)


def render(view: CalibrateView) -> None:
    """Draw the page."""
    mode = view.mode
    bar = st.container(horizontal=True, gap="small", vertical_alignment="bottom")
    try:
        prepared = _choose_runs(view, bar)
    except Refused as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    names = _choose_parameters(view, prepared, bar)
    outcome: CalibrationOutcome | None = None
    if prepared.checked.accepted.any():
        try:
            outcome = data.outcome_of(prepared, names)
        except Refused as problem:
            st.error(literal(str(problem)), icon=":material/error:")
    _draw_strip(prepared, outcome)
    if outcome is None:
        st.warning("None of these runs can be used, so nothing is fitted; the table says why.", icon=":material/rule:")
        tables.draw_runs(prepared.checked, None)
        return
    _draw_verdict(outcome, prepared)
    left, right = st.columns([1.45, 1], gap="medium")
    with left:
        st.html(markup.head("Predicted against measured, before and after", "step time; one line per run"))
        after = UNSEEN if outcome.errors_unseen is not None else FITTED
        show(before_and_after(_chart_rows(outcome), after, mode), "calibrate_errors")
    with right.container(border=True, gap="xsmall"):
        st.html(markup.head("What the fit changes", "90 % ranges, over the value before"))
        show(parameters_moved(tables.parameter_moves(outcome.estimates), mode), "calibrate_moved")
        _draw_uses(view.scenario, outcome, f"{prepared.key}-{'-'.join(item.about.name for item in outcome.estimates)}")
    tables.draw_parameters(outcome)
    tables.draw_runs(prepared.checked, outcome)
    draw_ranking(view.scenario, outcome, view.fields["rank"])


def _draw_uses(scenario: Scenario, outcome: CalibrationOutcome, key: str) -> None:
    """Draw the uses of a fit; folded with the reason if it does not lower the error of unseen runs."""
    if outcome.helps is not False:
        draw_uses(scenario, outcome, key)
        return
    st.caption("This fit does not predict unseen runs better. Stay with the values it started from.")
    with st.expander("Use it nevertheless", key="calibrate_nevertheless"):
        draw_uses(scenario, outcome, key)


def _choose_runs(view: CalibrateView, bar: Any) -> data.PreparedRuns:
    """Draw the choice of runs and return them: uploaded ones, or an example. Raises `Refused`."""
    with bar.popover("Bring runs", icon=":material/upload_file:", help="Measured runs of your own cluster."):
        files, given = _draw_upload()
    resets = (view.fields["parameters"].parameter,)
    with bar:
        if files:
            draw_choice(view.fields["system"], width=400, resets=resets)
        else:
            draw_choice(view.fields["example"], label="Example runs, published", width=400, resets=resets)
        draw_choice(view.fields["base"], label="Start from", width=214)
    base = view.bases[view.link.base]
    try:
        parameters_of(base)
        if not files:
            return data.prepared_example(view.link.example, base)
        fields = calibrate.parse_given(given.replace(",", " ").split())
    except (CalibrateError, CalibrationFileError) as problem:
        raise Refused(sentence(problem)) from None
    contents = {
        f"{place} {file.name}" if len(files) > 1 else file.name: file.getvalue() for place, file in enumerate(files, 1)
    }
    return data.prepared_upload(contents, view.systems[view.link.system], fields, base)


def _calibration_title(base: Calibration) -> str:
    """Return the calibration's title in the list of starting points."""
    return "The library's" if base.name == "global" else base.title or base.name


def _draw_upload() -> tuple[list[Any], str]:
    """Draw the template and the upload; return the uploaded files and the values for missing fields."""
    st.caption(
        "A CSV file with usual columns (model, gpus, tp, pp, dp, micro batch, batch, precision, tokens/s or TFLOP/s or "
        "step time), or those of the template; models of the library by name. Or logs of Megatron-LM, NeMo, "
        "Megatron-Bridge or torchtitan with the arguments that they print, one run per log. Up to "
        f"{MOST_MEGABYTES} MB and {calibrate.MOST_RUNS:,} runs. Files stay on this server while this page is open."
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
        placeholder="batch=512 precision=bf16",
        max_chars=400,
        help="Fields for all runs that lack them, as FIELD=VALUE with spaces between.",
    )
    tables.draw_template_fields(dict(calibrate.FIELDS))
    return list(files or []), str(given or "")


def _choose_parameters(view: CalibrateView, prepared: data.PreparedRuns, bar: Any) -> tuple[str, ...] | None:
    """Draw the choice of parameters and return their names; None: those suggested by the runs."""
    field = view.fields["parameters"]
    labels = tables.parameter_labels(prepared.checked, parameters_of(prepared.base))
    known = tuple(name for name in view.parameters if name in labels)
    strange = [name[:40] for name in view.parameters if name not in labels]
    if strange:
        named = ", ".join(strange[:3])
        sentence = f"The link's parameters to fit name {named}, which these runs cannot determine; left out."
        state.complain(field.parameter, sentence)
    key = key_for(f"_calibrate_parameters_{prepared.checked.system.name}", list(known))

    def changed() -> None:
        state.set_url_value(field.parameter, "-".join(given(key)) or None)

    with bar:
        st.multiselect(
            field.label,
            list(labels),
            list(known),
            format_func=lambda name: labels[name],
            key=key,
            on_change=changed,
            placeholder="the best-determined ones",
            width=400,
            max_selections=calibrate.MOST_PARAMETERS,
            help=field.declared.help,
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
        seen = "part of the library's fit" if outcome.known else "not fitted"
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
