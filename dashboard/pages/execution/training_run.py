"""The Execution page's panel on a whole training run: time with failures, money, energy, and their basis."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link import state
from dashboard.queries.economics import MFU_FORMULA, token_flops, utilisation
from dashboard.widgets.controls import given, key_for
from dashboard.words.amounts import format_duration, format_large, format_usd_range
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, count, days, gibibytes, percent, plain, with_unit
from engine import Scenario, economics
from engine.columns import MFU_OF, by_name
from engine.economics import CONVENTIONS, HFU_FORMULA, INPUTS, OUTPUTS, DerivedError, RunInput, RunInputs, TrainingRun
from engine.questions.cost import find_training_cost
from engine.questions.documents.cost import CostQuestion
from hardware import System
from models.token_flops import Convention

__all__ = ["panel"]

_NUMBER: Final = re.compile(r"\d{1,20}(\.\d{0,20})?(e[+-]?\d{1,3})?")
_COLUMNS: Final = 4
_BILLION: Final = 1e9
_WIDTHS: Final = (204, 82, 376, 260)
"""Widths of the columns of the tables of formulas [px]; an open menu shows all but the last without scrolling."""
_PARTS: Final = {
    "compute": "Productive time",
    "writing": "Writing checkpoints",
    "restarting": "Restarting",
    "lost": "Thrown away by failures",
}


@dataclass(frozen=True, slots=True)
class TrainingRunView:
    """The panel's part of the link."""

    scenario: Scenario
    given: Mapping[str, float]
    """Values of the inputs that the link has, by name."""
    refused: frozenset[str]
    """Names of inputs whose value in the link is out of range."""


def parse_training_run() -> TrainingRunView:
    """Parse the panel's part of the link: a fragment runs again without the page's own parse."""
    given: dict[str, float] = {}
    refused = set()
    for one in INPUTS.values():
        text = state.url_value(f"execution_run_{one.name}", "", _NUMBER)
        if text and one.accepts(float(text)):
            given[one.name] = float(text)
        elif text:
            refused.add(one.name)
    return TrainingRunView(state.current_scenario(), given, frozenset(refused))


@st.fragment
def panel(row: Mapping[str, Any]) -> None:
    """Draws the inputs, the results, and their formulas."""
    view = parse_training_run()
    scenario = view.scenario
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(markup.head("What a training run takes", "failures, checkpoints, price and power as below"))
        st.space("stretch")
        place = st.empty()
    if not row["training"]:
        st.caption("This execution does not train.")
        return
    strip = st.container()
    _draw_inputs(view)
    assumptions: dict[str, Any] = dict(view.given)
    question = CostQuestion(
        model=scenario.model.name,
        system=scenario.system.name,
        num_procs=scenario.num_procs,
        tokens_per_s=float(row["sample_rate"]) * scenario.model.tokens_per_sample,
        datatype=scenario.datatype,
        **assumptions,
    )
    try:
        run = find_training_cost(question, scenario.model, scenario.system).run
    except DerivedError as problem:
        strip.warning(literal(_in_words(str(problem))), icon=":material/block:")
        return
    with strip:
        st.html(markup.figure_strip(training_tiles(scenario, row, run)))
        shares = [(words, percent(getattr(run.parts, name) / run.wall_s, 2)) for name, words in _PARTS.items()]
        st.html(markup.facts(shares))
    with place.popover("Formulas", type="tertiary", icon=":material/function:", help="Every figure, and its source."):
        _draw_formulas(view, row, run)


def training_tiles(scenario: Scenario, row: Mapping[str, Any], run: TrainingRun) -> list[markup.Tile]:
    """Returns the headline figures of a training run."""
    flops, rate = token_flops(scenario), float(row["sample_rate"])
    peak = scenario.system.peak_tflops(scenario.datatype) * 1e12
    counted = scenario.flop_convention
    done = economics.utilisation(
        flops.hardware(row["activation_recompute"], counted), run.tokens_per_s, float(run.num_procs), peak
    )
    other: Convention = "full" if counted == "causal" else "causal"
    used = percent(utilisation(scenario, rate, convention=other))
    cost, each = format_usd_range(run.usd), format_usd_range(run.usd_per_billion)
    energy = run.energy_kwh
    return [
        markup.Tile(
            "Wall-clock time",
            days(run.wall_s),
            f"{days(run.compute_s)} without failures",
            formula=OUTPUTS["wall_s"].formula,
        ),
        markup.Tile(
            "GPU-hours",
            format_large(run.proc_hours),
            f"{count(run.tokens_per_s)} tokens/s",
            formula=OUTPUTS["proc_hours"].formula,
        ),
        markup.Tile(
            "Cost", cost, f"{each} per bn tokens" if run.usd else "no price recorded", formula=OUTPUTS["usd"].formula
        ),
        markup.Tile(
            "Energy",
            ABSENT if energy is None else f"{format_large(energy / 1e3)} MWh",
            "no power recorded"
            if run.kwh_per_billion is None
            else f"{plain(float(f'{run.kwh_per_billion:.3g}'))} kWh per bn tokens",
            formula=OUTPUTS["energy_kwh"].formula,
        ),
        markup.Tile(
            "Goodput",
            percent(run.goodput),
            f"{format_large(run.failures)} failures expected",
            formula=OUTPUTS["goodput"].formula,
        ),
        markup.Tile(
            "Checkpoint every",
            format_duration(run.interval_s),
            f"{format_duration(run.checkpoint_s)}, {gibibytes(run.checkpoint_bytes)} per GPU",
            formula=f"{OUTPUTS['daly_s'].formula} ({OUTPUTS['daly_s'].source})",
        ),
        markup.Tile(
            f"HFU, {counted}",
            percent(done),
            f"{by_name(MFU_OF[other]).short} {used}",
            formula=f"{HFU_FORMULA}; {CONVENTIONS[counted]}. MFU = {MFU_FORMULA}",
        ),
    ]


def _draw_inputs(view: TrainingRunView) -> None:
    """Draw the number fields."""
    system = view.scenario.system
    defaults = asdict(RunInputs.of(system))
    names = list(INPUTS)
    for start in range(0, len(names), _COLUMNS):
        for place, name in zip(st.columns(_COLUMNS, gap="small"), names[start : start + _COLUMNS], strict=False):
            with place:
                _draw_field(INPUTS[name], view, defaults[name])


def _draw_field(one: RunInput, view: TrainingRunView, default: float | None) -> None:
    """Draw one number field, which writes the link."""
    link, value, system = f"execution_run_{one.name}", view.given.get(one.name), view.scenario.system
    scale, unit = _screen_unit(one)
    if one.name in view.refused:
        st.caption(f":orange[The link's {literal(one.label)} is out of range; using the default.]")
    shown = None if value is None and default is None else ((default if value is None else value) or 0.0) / scale
    key = key_for(f"_{link}", shown, clearable=True)

    def changed() -> None:
        now = given(key)
        new = None if now is None else float(f"{now * scale:.12g}")
        state.set_url_value(link, None if new is None or new == default or not one.accepts(new) else f"{new:.12g}")

    st.number_input(
        f"{_on_page(one.label)}{unit and f' [{unit}]'}",
        one.low / scale,
        one.high / scale,
        None,
        key=key,
        on_change=changed,
        format="%.6g",
        placeholder="the optimum" if one.name == "interval_s" else "not recorded",
        help=literal(f"{_on_page(one.description)} Default: {_input_source(one, system)}."),
        step=_field_step(default, scale),
    )


def _screen_unit(one: RunInput) -> tuple[float, str]:
    """Return (size of the unit on screen, its name)."""
    if one.name == "tokens":
        return _BILLION, "bn"
    return 1.0, _on_page(one.unit)


def _field_step(default: float | None, scale: float) -> float:
    """Return a round number near a tenth of the default."""
    return float(f"{default / scale / 10:.1g}") if default else 1.0


def _input_source(one: RunInput, system: System) -> str:
    facts = system.accelerator
    if one.name in ("usd_low", "usd_high") and facts is not None and facts.usd_source:
        return facts.usd_source
    return one.source


def _in_words(problem: str) -> str:
    """Return a message of the engine with the page's labels of the inputs."""
    for one in INPUTS.values():
        problem = re.sub(rf"\b{one.name}\b", one.label, problem)
    return _on_page(problem)


def _on_page(text: str) -> str:
    """Return a text of the engine with "GPU" for "processor"."""
    return text.replace("Processor", "GPU").replace("processor", "GPU")


def _column_widths(table: pd.DataFrame) -> dict[str, Any]:
    return {name: st.column_config.Column(width=width) for name, width in zip(table.columns, _WIDTHS, strict=False)}


def _draw_formulas(view: TrainingRunView, row: Mapping[str, Any], run: TrainingRun) -> None:
    scenario = view.scenario
    st.caption(
        "δ is writing a checkpoint, M the time between failures of the run, R a restart, τ the interval taken. "
        "Money and energy are those of the wall-clock time."
    )
    table = pd.DataFrame(
        [
            (_on_page(one.label), _format_output(one.name, one.unit, run), _on_page(one.formula), one.source)
            for one in OUTPUTS.values()
        ],
        columns=["Figure", "value", "formula", "source"],
    )
    st.dataframe(
        table,
        hide_index=True,
        height="content",
        key="execution_run_formulas",
        column_config=_column_widths(table),
        alt="Every figure of the training run with its formula",
    )
    sources = pd.DataFrame(
        [
            (
                _on_page(one.label),
                "the optimum"
                if value is None and one.name == "interval_s"
                else ABSENT
                if value is None
                else _on_page(f"{plain(value)} {one.unit}".strip()),
                _input_source(one, scenario.system) if one.name not in view.given else "given",
            )
            for one in INPUTS.values()
            for value in [getattr(run.inputs, one.name)]
        ],
        columns=["Assumption", "value", "from"],
    )
    st.dataframe(
        sources,
        hide_index=True,
        height="content",
        key="execution_run_sources",
        column_config=_column_widths(sources),
        alt="Every assumption of the training run with its source",
    )
    rate = float(row["sample_rate"])
    st.caption(
        literal(
            f"MFU = {MFU_FORMULA}: {percent(utilisation(scenario, rate, convention='causal'))} with "
            f"{CONVENTIONS['causal']}, {percent(utilisation(scenario, rate, convention='full'))} with "
            f"{CONVENTIONS['full']}. "
            f"HFU: {HFU_FORMULA}."
        )
    )


def _format_output(name: str, unit: str, run: TrainingRun) -> str:
    """Return a figure as the table of formulas shows it."""
    if name == "usd":
        return format_usd_range(run.usd)
    value = getattr(run, name)
    if value is None:
        return ABSENT
    if unit == "s":
        return days(value) if value >= 86_400 else format_duration(value)
    if unit == "bytes":
        return gibibytes(value)
    if unit == "fraction":
        return percent(value)
    return with_unit(format_large(value), unit)
