"""The lower half of the Execution page: schedule, networks, bandwidths, formulas."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard import state
from dashboard.charts import markup
from dashboard.charts.gantt import MOST_BARS, gantt, shown_stages, summary
from dashboard.charts.networks import Group, Traffic, partners, placement, traffic
from dashboard.controls import choose, show
from dashboard.derived import Metric
from dashboard.derived_formulas import derived_formula, derived_metrics
from dashboard.format import ABSENT, counted, format_value, percent
from dashboard.formula_table import EXPRESSIONS
from dashboard.formulas import Formula, formula, layer_sum
from dashboard.palette import TIME_KINDS
from dashboard.text import literal
from dashboard.wording import blocks_of, network_name
from engine import Exploration, Scenario
from engine.columns import STATISTICS, Column, by_name, value_of
from engine.schedule import Schedule, schedule

__all__ = [
    "bandwidths", "derived_written", "figure_names", "formula_panel", "made_of", "network_boxes", "networks",
    "parts_explained", "pipeline", "written_out",
]  # fmt: skip

_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
_NEEDS: Final = (
    ("act_offload_bw_req", "activations_offload"), ("weight_offload_bw_req", "weight_offload"),
    ("optim_offload_bw_req", "optimizer_offload"),
)  # fmt: skip
_EXPOSED_PARTS: Final = {
    "communication": ("tp_comm_exposed_time", "pp_comm_exposed_time", "cp_comm_exposed_time", "ep_comm_exposed_time"),
    "offload": ("fw_offload_exposed_time", "bw_offload_exposed_time"),
    "recompute": ("recompute_time", "recomm_exposed_time"),
}
"""What a chunk's bar may contain besides the model's own work, and the times that say whether it does."""


@st.cache_data(show_spinner=False, max_entries=64)
def _schedule(num_blocks: int, row: dict[str, Any]) -> Schedule:
    few = int(row["pipeline_par"]) / len(shown_stages(int(row["pipeline_par"])))
    return schedule(row, num_blocks, most_tasks=int(2 * MOST_BARS * few))


def pipeline(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """The schedule, full width."""
    found = _schedule(blocks_of(exploration.scenario), row)
    facts = summary(found)
    kind = "interleaved 1F1B" if facts["chunks"] > 1 else "1F1B"
    parts = [kind, f"{facts['stages']} stages"] if facts["stages"] > 1 else ["no pipeline: one stage"]
    if facts["chunks"] > 1:
        parts.append(f"{facts['chunks']} chunks")
    parts += [counted(facts["microbatches"], "microbatch"), _idle(row, facts["idle"])]
    st.html(markup.head("Pipeline schedule", " · ".join(parts)))
    show(gantt(found, mode), "execution_gantt")
    st.html(markup.legend(replace(_KINDS[key], name=word) for key, word in _bars(found, row).items()))
    notes = [_inside_bars(row)]
    if facts["chunks"] > 1:
        notes.append("Fainter is a later chunk.")
    if exploration.scenario.cost_model != "calculon":
        notes.append("Every stage is drawn like the slowest; the end of the step waits for stragglers and the host.")
    hidden = facts["stages"] - len(shown_stages(facts["stages"]))
    if hidden:
        notes.append(f"{hidden} stages between are not drawn.")
    st.caption(" ".join(notes))


def _idle(row: Mapping[Any, Any], share: float) -> str:
    """How much of a schedule is idle, and what of it is no bubble: the tile and the waterfall tell that apart."""
    step = float(row["total_time"])
    bubble, told = percent(float(row["bubble_time"]) / step), f"idle {percent(share)}"
    if told == f"idle {bubble}":
        return told
    host = float(row.get("overhead_time") or 0.0) / step
    rest = f"stragglers and host {percent(host)}" if host > 0 else "the rest since stages are not equal"
    return f"{told}: bubble {bubble}, {rest}"


def _bars(found: Schedule, row: Mapping[Any, Any]) -> dict[str, str]:
    """What the bars of a schedule are called, by kind of time; only of kinds that there are."""
    again = " with recompute" if _takes(row, "recompute_time", "recomm_exposed_time") else ""
    # Full sharding gathers weights block by block; the schedule has all of it at its end.
    exchanged = "weight gathers, exposed" if row.get("zero_stage") == 3 else "gradient exchange, exposed"
    words = {
        "forward": ("forward", "forward"), "backward": ("backward", f"backward{again}"),
        "exchange": ("data", exchanged), "optimizer": ("optimizer", "optimizer step"),
    }  # fmt: skip
    there = set(found.tasks["kind"])
    named = {key: word for task, (key, word) in words.items() if task in there}
    return named | ({"bubble": "idle"} if len(found.idle()) else {})


def _inside_bars(row: Mapping[Any, Any]) -> str:
    """What a chunk's bar contains besides the model's own work, in a sentence."""
    parts = [word for word, names in _EXPOSED_PARTS.items() if _takes(row, *names)]
    if not parts:
        return "A bar is a chunk of one microbatch; nothing else of it is exposed."
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"A bar is a chunk of one microbatch with what of it is exposed: {listed}."


def _takes(row: Mapping[Any, Any], *names: str) -> bool:
    """Whether any of these takes time; a figure that the cost model does not have takes none."""
    return any(float(row.get(name, 0.0)) > 0 for name in names)


def networks(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """Who talks to whom, and what that costs, as Calculon has it."""
    network_boxes(
        exploration, row, mode, placement(row), _traffic(exploration, row),
        "A placement that agrees with the tiers of this execution; the model knows tiers and degrees only, so any "
        "other with the same tiers takes the same time.",
    )  # fmt: skip


def network_boxes(
    exploration: Exploration,
    row: Mapping[str, Any],
    mode: str,
    groups: Sequence[Group],
    times: Sequence[Traffic],
    placed: str,
    counted: str = "",
) -> None:
    """Who talks to whom, and beside it the time on the links.

    placed, counted: what there is to say of the placement, and of the times.
    """
    system = exploration.scenario.system
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        domain = system.networks[0].size
        st.html(markup.head("Who talks to whom", f"partners of GPU 0; bands are {domain:,} GPUs on tier 0"))
        show(partners(groups, int(row["num_procs"]), domain, mode), "execution_partners")
        tiers = [network_name(system, tier).partition(", ") for tier in range(len(system.networks))]
        st.html(markup.chips([(name, rest) for name, _, rest in tiers]))
        st.caption(placed)
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Time on the links", "per step; solid is exposed, faint is hidden"))
        show(traffic(times, mode), "execution_traffic")
        if counted:
            st.caption(counted)


def _traffic(exploration: Exploration, row: dict[str, Any]) -> list[Traffic]:
    system = exploration.scenario.system
    found = []
    for name, key, link, exposed, degree, net in (
        ("TP", "tensor", "tp_comm_link_time", "tp_comm_exposed_time", "tensor_par", "tensor_par_net"),
        ("TP repeated", "tensor", "recomm_link_time", "recomm_exposed_time", "tensor_par", "tensor_par_net"),
        ("PP", "pipeline", "pp_comm_link_time", "pp_comm_exposed_time", "pipeline_par", "pipeline_par_net"),
        ("DP", "data", "dp_comm_link_time", "dp_comm_exposed_time", "data_par", "data_par_net"),
    ):
        times = float(row[link]), float(row[exposed])
        if int(row[degree]) > 1 and (name != "TP repeated" or max(times) > 0):
            found.append(Traffic(name, key, *times, network_name(system, int(row[net]))))
    return found


def bandwidths(exploration: Exploration, row: dict[str, Any]) -> None:
    """The bandwidths that would hide offload and overlapped communication, against what there is."""
    system = exploration.scenario.system
    st.html(markup.head("Bandwidth that would hide it", "per GPU; what is available is the peak"))
    host = system.mem2.bandwidth_gb_per_s * 1e9 if system.mem2.capacity_gib > 0 else 0.0
    rows = [
        (by_name(name), float(row[name]), host)
        for name, flag in _NEEDS
        if row[flag] and not pd.isna(row[name])  # the calibrated cost model moves the optimizer's state once per step
    ]
    if any(row[flag] for _, flag in _NEEDS):
        rows.append((by_name("offload_mem_bw_req"), float(row["offload_mem_bw_req"]), host))
    for name, net, on in (
        ("tp_bw_overlap_req", "tensor_par_net", row["tensor_par_overlap"] != "none"),
        ("dp_bw_overlap_req_chunk", "data_par_net", bool(row["data_par_overlap"])),
        ("dp_bw_overlap_req_tail", "data_par_net", bool(row["data_par_overlap"])),
    ):
        if on and float(row[name]) > 0:
            there = system.networks[int(row[net])].bandwidth_gb_per_s * 1e9
            rows.append((by_name(name), float(row[name]), there))
    if not rows:
        st.caption("Nothing is offloaded, and no overlap of communication asks for a bandwidth.")
        return
    table = pd.DataFrame(
        {
            "Bandwidth": [column.label for column, *_ in rows],
            "needed": [format_value("offload_mem_bw_req", need) for _, need, _ in rows],
            "available": [format_value("offload_mem_bw_req", there) if there else "none" for _, _, there in rows],
            "enough": ["yes" if need <= there else "no" for _, need, there in rows],
        }
    )
    figures, words = st.columns([1, 1], gap="medium")
    figures.dataframe(
        table, hide_index=True, height="content", row_height=28, key="execution_bandwidths",
        alt="Bandwidths that would hide offload and overlapped communication",
        column_config={
            "Bandwidth": st.column_config.TextColumn(width=215),
            "needed": st.column_config.TextColumn(width=72, help="Bandwidth at which nothing would wait for it."),
            "available": st.column_config.TextColumn(width=72, help="Peak of the link that it goes over."),
            "enough": st.column_config.TextColumn(width=62),
        },
    )  # fmt: skip
    words.html(markup.meanings((column.label, column.description) for column, *_ in rows))


@st.fragment
def formula_panel(exploration: Exploration, row: dict[str, Any]) -> None:
    """Any figure with its expression, the numbers put in, units and source."""
    st.html(markup.head("How a figure comes about", "expression, numbers, source"))
    scenario = exploration.scenario
    further = derived_metrics(scenario)
    columns = {column.name: column for column in reversed(STATISTICS)}
    options = figure_names([*(metric.column for metric in further.values()), *columns.values()])
    whole, parts = st.columns(2, gap="medium")
    with whole:
        name = choose("Figure", options, "execution_figure", default="total_time")
        if name in further:
            derived_written(further[name], row, scenario, parts)
            return
        column = columns[name]
        st.caption(column.description)
        found = formula(name, row, scenario.model, scenario.system)
        value = format_value(column, row[name])
        if found is None:
            _of_layers(name, value)
            return
        written_out(found, value)
        parts_explained(found, EXPRESSIONS)
        st.caption(f"Source: {found.source}.")
    with parts:
        made_of(found)


def figure_names(columns: Iterable[Column]) -> dict[str, str]:
    """What figures are called in the list of a formula panel, by name."""
    return {column.name: f"{column.label} · {column.group}" for column in columns}


def derived_written(metric: Metric, row: Mapping[Any, Any], scenario: Scenario, parts: DeltaGenerator) -> None:
    """A figure that follows from others: its formula, and in another place what it is made of."""
    found = derived_formula(metric, row, scenario)
    st.caption(literal(metric.column.description))
    value = metric.of(float(value_of(metric.statistic, row)))
    written_out(found, format_value(metric.column, value))
    st.caption(literal(f"Source: {found.source}."))
    with parts:
        made_of(found)


def written_out(found: Formula, value: str) -> None:
    """A formula, with the numbers put in, and what they make; each once where they are the same."""
    lines = dict.fromkeys((found.expression, found.numbers, value))
    st.code(f"{found.column.name} = " + "\n= ".join(lines), language=None, wrap_lines=True)


def parts_explained(found: Formula, known: Container[str]) -> None:
    """Buttons that lead from a formula on to those of its parts. known: figures that have one."""
    more = [part for part, _, _ in found.parts if part in known]
    if not more:
        return
    with st.container(horizontal=True, gap="xsmall"):
        for part in more:
            st.button(
                by_name(part).short, key=f"execution_why_{part}", type="tertiary", icon=":material/function:",
                on_click=state.set_url_value, args=("execution_figure", part),
                help=f"How {by_name(part).label} comes about",
            )  # fmt: skip


def made_of(found: Formula) -> None:
    """Everything in a formula, in the order in which it is read."""
    parts = pd.DataFrame(found.parts, columns=["name", "value", "what it is"])
    parts["value"] = parts["value"].replace("", ABSENT)
    st.dataframe(
        parts, hide_index=True, height="content", row_height=28, key="execution_parts",
        alt=f"Everything that {found.column.label} is made of",
        column_config={
            "name": st.column_config.TextColumn(width=200), "value": st.column_config.TextColumn(width=90),
            "what it is": st.column_config.TextColumn(width=250),
        },
    )  # fmt: skip


def _of_layers(name: str, value: str) -> None:
    summed = layer_sum(name)
    if summed is not None:
        st.code(f"{name} = sum over the layers of {summed}\n= {value}", language=None, wrap_lines=True)
        st.caption("The layers are in the table above, each with its own figure. Source: Calculon 0.1.0, llm.py, "
                   "_compute_block_stats.")  # fmt: skip
        return
    st.markdown(f"**{value}**")
    st.caption("This figure is put together layer by layer, each layer by its own rule, so one expression cannot tell "
               "it; see the table of layers. Source: Calculon 0.1.0, llm.py, _compute_block_stats.")  # fmt: skip
