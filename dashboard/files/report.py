"""A report of an exploration: one HTML file that opens offline, with interactive figures, tables and the scenario.

Every text is escaped. The page forbids itself to load anything, and to run any script but the two it brings.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from dashboard.charts.elements.markup import doubts_line, figure_strip, head, stylesheet
from dashboard.charts.elements.template import CONFIG
from dashboard.compat import plotly_figures
from dashboard.files.exports import version
from dashboard.files.report_parts import Figure, best_table, figures, formulas, key_figures, top_table
from dashboard.queries.accuracy import EXPLAINED, basis, doubts, label_of
from dashboard.queries.document_sheets import changes_in_words, lineage, not_represented, sheet
from dashboard.queries.figures import choose_execution
from dashboard.queries.nearest_fit import how_far, ways
from dashboard.settings import STATIC
from dashboard.words.glossary import words
from dashboard.words.limits import in_words
from dashboard.words.scenarios import name_of
from engine import Exploration, Scenario
from engine.columns import choice_label
from engine.cost_models.registry import cost_model_of
from engine.cost_models.words import told_not_measured
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import FiguresOf, ShownExecution

__all__ = ["build", "drawn", "list_assumptions", "page", "sentence", "subjects", "whole"]

_SCRIPT: Final = """
const figures = JSON.parse(document.getElementById("figures").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const config = JSON.parse(document.getElementById("config").textContent);
function draw() {
  for (const [key, modes] of Object.entries(figures)) {
    const figure = modes[dark.matches ? "dark" : "light"];
    Plotly.react("figure-" + key, figure.data, figure.layout, config);
  }
}
draw();
dark.addEventListener("change", draw);
// On paper: as wide as the page, in the light colours that it is printed in.
function printed() {
  for (const [key, modes] of Object.entries(figures)) {
    const layout = {...modes.light.layout, width: 690};
    Plotly.react("figure-" + key, modes.light.data, layout, {...config, responsive: false});
  }
}
window.addEventListener("beforeprint", printed);
window.addEventListener("afterprint", draw);
"""
_FONT: Final = STATIC / "inter-latin-wght-normal.woff2"
_STYLE: Final = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 1180px; padding: 24px 28px 64px; font: 14px/1.5 Inter, system-ui, sans-serif;
       color: light-dark(#1B2430, #E4E9F0); background: light-dark(#FFFFFF, #11151C); }
h1 { font-size: 20px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 36px 0 8px; }
summary { margin: 12px 0 4px; cursor: pointer; }
p, li { max-width: 90ch; } code { overflow-wrap: anywhere; }
.muted, footer { color: light-dark(#66707D, #9AA5B3); font-size: 12px; }
h2, h3 { break-after: avoid; } section { margin: 20px 0 28px; break-inside: avoid; }
section .ss-legend { margin-top: 8px; }
.wide { overflow-x: auto; } .ss-rows th, .ss-rows td { padding: 3px 8px; }
pre { font-size: 12px; overflow: auto; max-height: 480px; padding: 12px;
  background: light-dark(#F4F6F8, #1A2029); border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print { :root { color-scheme: light; } body { padding: 0; font-size: 12px; } pre { max-height: none; }
  .ss-swatch { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .wide { overflow: visible; } .ss-rows { font-size: 9px; line-height: 14px; }
  .ss-rows th, .ss-rows td { padding: 2px 4px; } }
"""


def build(exploration: Exploration, address: str = "", title: str = "", asked: FiguresQuestion | None = None) -> bytes:
    """Returns the report of an exploration as a UTF-8 HTML document.

    address: link to the scenario, printed as text. title: instead of one made from model and system. asked: whose
    figures it shows, the recommended or the fastest execution's, and the terms of the recommendation; recommended if
    None.
    """
    scenario = exploration.scenario
    shown = choose_execution(exploration, asked or FiguresQuestion()).shown
    best = None if shown is None else dict(shown.execution)
    figures_of = "fastest" if shown is None else shown.figures_of
    places, data = drawn(figures(exploration, best))
    name = title or name_of(scenario)
    body = (
        f"<h1>{escape(name)}</h1><p>{escape(sentence(scenario))}</p>"
        f"{figure_strip(key_figures(exploration, best, figures_of), basis(scenario, best))}"
        f"{_doubts_section(scenario, shown)}"
        f"{_answer_section(exploration, best, figures_of)}<h2>Figures</h2>{places}"
        f"{_table_section(exploration, best)}{subjects(scenario)}"
        f"<h2>Assumptions and versions</h2><ul>{list_assumptions(exploration, best)}</ul>"
        f"{whole('scenario', scenario.to_document(), address)}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def drawn(shown: Sequence[Figure]) -> tuple[str, dict[str, Any]]:
    """Returns the sections of figures as HTML, and the figures themselves by key and mode, as `page` takes them."""
    charts = {figure.key: {mode: figure.draw(mode) for mode in ("light", "dark")} for figure in shown}
    data = {
        key: {mode: json.loads(each.drawing.to_json()) for mode, each in modes.items()} for key, modes in charts.items()
    }
    for modes in data.values():
        for figure in modes.values():
            figure["layout"].setdefault("font", {})["family"] = "Inter, system-ui, sans-serif"
    sections = "".join(
        f'<section>{head(figure.title, figure.scope)}<div id="figure-{figure.key}" role="img" '
        f'aria-label="{escape(charts[figure.key]["light"].alt)}"></div>{figure.note}'
        f'<p class="muted">{escape(charts[figure.key]["light"].alt)}</p></section>'
        for figure in shown
    )
    return sections, data


def page(name: str, body: str, data: dict[str, Any]) -> str:
    """Returns the HTML document around a body."""
    kinds = {trace["type"] for modes in data.values() for figure in modes.values() for trace in figure["data"]}
    library = f"\n{plotly_figures.javascript(kinds)}\n"
    hashes = " ".join(f"'sha256-{_script_digest(script)}'" for script in (library, _SCRIPT))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(name)} · Shardscape</title>{stylesheet()}<style>{_font_style()}{_STYLE}</style></head>"
        f"<body>{body}"
        f'<script type="application/json" id="figures">{_safe_json(data)}</script>'
        f'<script type="application/json" id="config">{_safe_json({**CONFIG, "responsive": True})}</script>'
        f"<script>{library}</script><script>{_SCRIPT}</script></body></html>\n"
    )


def _font_style() -> str:
    """Return the style of the pages' font; without its file the report uses the system's."""
    if not _FONT.is_file():
        return ""
    data = base64.b64encode(_FONT.read_bytes()).decode()
    return (
        '@font-face { font-family: Inter; font-weight: 100 900; src: url("data:font/woff2;base64,'
        f'{data}") '
        'format("woff2"); }'
    )


def _script_digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _safe_json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def sentence(scenario: Scenario) -> str:
    """Returns the scenario in a sentence."""
    model = scenario.model.title or scenario.model.name
    system = scenario.system.title or scenario.system.name
    return (
        f"Train {model} on {scenario.num_procs:,} × {system} in {choice_label('datatype', scenario.datatype)} with a "
        f"batch of up to {scenario.max_batch_size:,} × {scenario.model.seq_size:,} tokens; "
        f"{', '.join(in_words(scenario.field_limits, scenario.system)) or 'no restrictions'}"
        f"{'' if scenario.framework == ANY else f'; run by {FRAMEWORK_RULES[scenario.framework].title}'}."
    )


def _doubts_section(scenario: Scenario, shown: ShownExecution | None) -> str:
    """Return what speaks against the execution of the report; empty for most."""
    if shown is None:
        return ""
    told = (*([shown.remark] if shown.remark else []), *doubts(scenario, shown.execution))
    return doubts_line(told) if told else ""


def _answer_section(exploration: Exploration, best: dict[str, Any] | None, figures_of: FiguresOf) -> str:
    if best is None:
        far = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(how_far(exploration)))
        found = ways(exploration.scenario, exploration.key)
        help_words = f"<p>What would make it run: {escape(' · '.join(found))}.</p>" if found else ""
        return f"<p>{far} The map says how far each cell is from fitting.</p>{help_words}"
    table = best_table(best, exploration.scenario.system)
    return f"<h2>The {figures_of} execution</h2>{table}{_glossary_section(exploration.scenario)}"


def _glossary_section(scenario: Scenario) -> str:
    """Return the glossary, for readers who do not know the terms."""
    items = "".join(
        f"<li><b>{escape(word)}</b>{escape(f' ({short})') if short else ''}: {escape(meaning)}</li>"
        for word, short, meaning in words(scenario)
    )
    return f"<details><summary>What these words mean</summary><ul>{items}</ul></details>"


def _table_section(exploration: Exploration, best: dict[str, Any] | None) -> str:
    if best is None:
        return ""
    return f'<h2>The fastest executions</h2><div class="wide">{top_table(exploration)}</div>'


def subjects(scenario: Scenario) -> str:
    """Returns model and system with every value and its marks, and the parts that figures leave out."""
    parts = ["<h2>Model and system</h2>"]
    for noun, thing in (("Model", scenario.model), ("System", scenario.system)):
        limits = "".join(f"<li>{escape(line)}</li>" for line in not_represented(thing, scenario.cost_model))
        words = f"{lineage(thing)} {'; '.join(changes_in_words(thing))}."
        made = f"<p>{escape(words)}</p>" if thing.derived_from else ""
        parts.append(
            f"<div><h3>{noun}: {escape(thing.title or thing.name)}</h3>"
            f'<p class="muted">Source: {escape(thing.source or "not stated")}</p>{made}{sheet(thing)}'
            f"<p><b>Not represented</b></p><ul>{limits}</ul></div>"
        )
    return "".join(parts)


def list_assumptions(exploration: Exploration, shown: Mapping[str, Any] | None) -> str:
    """Return formulas, basis of the figures, and versions, as list items. shown: execution of the report, or None."""
    scenario = exploration.scenario
    rules = "".join(f"<li><b>{escape(name)}</b> = {escape(text)}</li>" for name, text in formulas(scenario))
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    seconds = exploration.timings.get("explore")
    took = f", in {seconds:.2g} s" if seconds else ""
    return (
        f"{rules}<li>Cost model {escape(scenario.physics)}: analytical, one step "
        "at steady state; failures, data loading and contention between collectives are not in it.</li>"
        f"{_basis_items(scenario, shown)}"
        f"<li>Shardscape {escape(version())}, report of {made}. All {exploration.total:,} executions of the space "
        f"were settled{took}; scenario {exploration.key}.</li>"
    )


def whole(noun: str, document: dict[str, Any], address: str, opens: str = "on the Scenarios page") -> str:
    """Returns the document that the report is of, to be opened again, and a link to it. noun: "scenario", "comparison"
    or "study". opens: where it can be opened."""
    where = f"<p>Link: <code>{escape(address)}</code></p>" if address else ""
    return (
        f"{where}<h2>{noun.capitalize()}</h2><p>Saved as a file, this opens {opens}.</p>"
        f'<pre id="{noun}">{escape(json.dumps(document, indent=1, ensure_ascii=False))}</pre>'
    )


def _basis_items(scenario: Scenario, shown: Mapping[str, Any] | None) -> str:
    """The label of the figures in words, and the calibration with its errors and the rates that follow from it."""
    label = label_of(scenario)
    said = f"<li>Times are <b>{label}</b>: {escape(EXPLAINED[label])}</li>"
    if not cost_model_of(scenario).takes_calibration:
        return said
    unknown = "" if shown is None else told_not_measured(scenario.not_measured(shown))
    said += f"<li>The execution shown: {escape(unknown)}</li>" if unknown else ""
    used = scenario.used_calibration
    errors = "; ".join(
        f"{error.described}: {error.mean_absolute_percent:.1f} % mean, {error.rows:,} rows"
        for error in used.errors
        if error.held_out
    )
    rates = "; ".join(
        f"{rate.name} {100 * rate.share:.0f} % of its peak ({rate.provenance})"
        for rate in cost_model_of(scenario).sustained_rates(scenario.system, used)
    )
    return (
        f"{said}<li>Calibration {escape(used.name)} of {escape(used.date)}, fitted on {escape(used.fitted_on)}. "
        f"Errors on rows that had no part in the fit: {escape(errors) or 'not recorded'}.</li>"
        f"<li>Sustained rates of {escape(scenario.system.title or scenario.system.name)}: {escape(rates)}.</li>"
    )
