"""Tables of the Serving page: deployments with their export, and why the others do not run."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import streamlit as st

import hardware
import models
from dashboard.charts.elements import markup
from dashboard.compat.caches import remembered
from dashboard.files import exports
from dashboard.link.fields import LinkField
from dashboard.pages.serving.inputs import pick_deployment
from dashboard.pages.serving.link import ServingLink
from dashboard.widgets.link_fields import draw_choice, draw_switch
from dashboard.widgets.tables import ROW, fitting, grouped, height_of
from dashboard.words.numbers import count, decimals_for, header, scale_for
from dashboard.words.serving import WORDS
from engine.serving import (
    HEADLINE,
    Assumptions,
    EngineFactors,
    ServingExploration,
    by_name,
    deployment_name,
    library_calibration,
)
from engine.serving.reasons import by_code

__all__ = ["deployments_file", "draw_deployments", "draw_rejected"]

SHOWN: Final = 500
COLUMNS: Final = (
    "id",
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "replicas",
    "batch",
    "weight_bits",
    "kv_bits",
    "attention_bits",
    "compute_bits",
    "launch",
    "engine",
    *(column.name for column in HEADLINE if column.name not in ("memory_capacity", "memory_reserve")),
)
FIRST: Final = (
    "id",
    "tensor_par",
    "pipeline_par",
    "replicas",
    "batch",
    "tokens_per_s_per_processor",
    "tokens_per_s_per_user",
    "time_to_first_token",
    "time_per_output_token",
    "memory_total",
)
"""Columns that are always shown."""
_ENDINGS: Final = {"csv": ".csv.zip", "parquet": ".parquet", "json": ".json"}
UNITS: Final = {
    "num_procs": "GPUs",
    "prompt": "tokens",
    "output": "tokens",
    "time_to_first_token": "s",
    "time_per_output_token": "s",
    "price": "USD per GPU and hour",
    "reserve_share": "fraction",
    "graph_memory": "bytes",
    "collective_latency": "s",
    "graph_kernel_start": "s",
    "four_bits": "bits per weight",
    "prefill_chunk": "tokens",
    "prefix_hit_rate": "fraction",
    "host_hit_share": "fraction",
    "host_cache_gib": "GiB",
    "draft_tokens": "tokens",
    "accepted_tokens": "tokens",
    "acceptance_rate": "fraction",
    "draft_model": "model document",
    "draft_bits": "bits",
    "lora_adapters": "adapters",
    "lora_rank": "elements",
}
"""Units of the question's and the assumptions' fields in files."""


def draw_deployments(by: str, link: ServingLink, fields: Mapping[str, LinkField], found: ServingExploration) -> None:
    """Draw the deployments that run, best first, with their download.

    Args:
        by: figure that they are sorted by.
        link: what the page shows.
        fields: of the page by name.
        found: all deployments.
    """
    only = link.only
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        scope = f"{found.feasible:,} that run; all figures are modelled; pick one to see it above"
        st.html(markup.head("Deployments", scope))
        draw_choice(fields["by"], label="Best by", help="", width=220)
        draw_switch(fields["only"])
        draw_switch(fields["columns"])
        rows = found.frontier.sort_values(by, ascending=by_name(by).better == "lower", kind="stable") if only else None
        for kind in _ENDINGS:
            st.download_button(
                exports.FORMATS[kind].label,
                data=partial(deployments_file, found, kind),
                file_name=f"{found.model.name}_{found.system.name}_{found.space.num_procs}_serving{_ENDINGS[kind]}",
                key=f"serving_download_{kind}",
                on_click="ignore",
                icon=":material/download:",
                type="tertiary",
            )
    rows = (found.top(SHOWN, by) if rows is None else rows.head(SHOWN))[list(COLUMNS)]
    shown, settings, decimals = _arrange_columns(rows)
    if not link.columns:
        first = [*dict.fromkeys((*FIRST, by))]
        kept = fitting(shown, settings, first, [name for name in COLUMNS if name not in first])
        shown = shown[[name for name in COLUMNS if name in kept]]

    def picked() -> None:
        places = st.session_state["serving_table"].selection.rows
        pick_deployment(int(rows["id"].iloc[places[0]]) if places else None)

    st.dataframe(
        grouped(shown, {name: digits for name, digits in decimals.items() if name in shown}),
        hide_index=True,
        key="serving_table",
        column_config={name: settings[name] for name in map(str, shown)},
        row_height=ROW,
        height=height_of(len(shown), 360),
        placeholder="–",
        on_select=picked,
        selection_mode="single-row",
        alt=f"{len(shown)} deployments, best {by_name(by).label} first.",
    )
    if len(rows) == SHOWN:
        st.caption(f"The first {SHOWN:,}; a download has all {found.feasible:,}.")


def _arrange_columns(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any], dict[str, int]]:
    """Return the rows in one unit per column, column settings from the register, and decimals of quantities."""
    shown: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    decimals: dict[str, int] = {}
    for name in rows.columns:
        column, values = by_name(str(name)), rows[name]
        help_text = f"{column.label}. {column.description}"
        if column.dtype == "float64":
            numbers = values.to_numpy(float)
            scale = scale_for(column, numbers)
            shown[column.name] = numbers / scale.factor
            text = header(column, scale)
            decimals[column.name] = decimals_for(numbers, scale, digits=4)
            settings[column.name] = st.column_config.NumberColumn(
                text, help=help_text, width=max(80, 7 * len(text) + 24)
            )
        elif column.dtype == "str":
            shown[column.name] = [WORDS.get(str(value), str(value)) for value in values]
            settings[column.name] = st.column_config.TextColumn(column.short, help=help_text, width=98)
        else:
            shown[column.name] = values.to_numpy()
            decimals[column.name] = 0
            settings[column.name] = st.column_config.NumberColumn(column.short, help=help_text, width=66)
    return pd.DataFrame(shown), settings, decimals


def _describe_assumptions(terms: Assumptions) -> dict[str, Any]:
    """Return the assumptions as files have them: a draft model as its document."""
    draft = None if terms.draft_model is None else models.to_document(terms.draft_model)
    return {**dataclasses.asdict(dataclasses.replace(terms, draft_model=None)), "draft_model": draft}


def _describe_factors(factors: EngineFactors | None) -> dict[str, Any]:
    """Return measured factors as files have them; empty without any."""
    if factors is None:
        return {}
    engines = {name: each._asdict() for name, each in factors.engines.items()}
    origin = {"name": factors.name, "system": factors.system, "fitted_on": factors.fitted_on}
    return {"factors": {**origin, "engines": engines}}


def deployments_file(found: ServingExploration, kind: str) -> bytes:
    """Return every deployment that runs as a file with its account; CSV files are in an archive with it.

    Args:
        found: all deployments.
        kind: csv, parquet or json.
    """
    table = found.table.astype({"launch": "str", "engine": "str"})
    calibration = found.calibration or library_calibration()
    about = {
        "format": "shardscape-deployments/1",
        "kind": "modelled",
        "software": f"shardscape {exports.version()}",
        "calibration": hardware.calibration_document(calibration),
        **_describe_factors(found.factors),
        "num_procs": found.space.num_procs,
        "prompt": found.space.prompt,
        "output": found.space.output,
        "time_to_first_token": found.time_to_first_token,
        "time_per_output_token": found.time_per_output_token,
        "limits": dict(found.space.limits),
        "price": found.price,
        "assumptions": _describe_assumptions(found.assumptions or Assumptions()),
        "units": UNITS,
        "columns": [exports.described(by_name(name)) for name in table.columns],
        "model": models.to_document(found.model),
        "system": hardware.to_document(found.system),
    }
    if kind == "csv":
        names = {name: exports.heading(by_name(name)) for name in table.columns}
        return exports.archive(about, {"deployments": table.rename(columns=names)})
    whole = pa.Table.from_pandas(table, preserve_index=False)
    if kind == "json":
        return b'{"about": ' + json.dumps(about).encode() + b', "deployments": [' + exports.json_rows(whole) + b"]}"
    target = io.BytesIO()
    pq.write_table(whole.replace_schema_metadata({"shardscape": json.dumps(about)}), target)
    return target.getvalue()


def draw_rejected(found: ServingExploration, key: str, *, nearest: bool = True) -> None:
    """Draws the reasons for which deployments do not run, with their numbers, and with `nearest` the nearest misses.
    key: of the question.
    """
    gone = found.total - found.feasible
    st.html(markup.head("Why deployments do not run", f"{count(gone)} of {count(found.total)}"))
    if not gone:
        st.caption("All of them run.")
        return
    rows = sorted(found.rejected.items(), key=lambda item: -item[1])
    st.dataframe(
        pd.DataFrame({"reason": [by_code(code).label for code, _ in rows], "count": [number for _, number in rows]}),
        hide_index=True,
        key="serving_reasons",
        alt=f"{len(rows)} reasons why deployments do not run.",
        column_config={
            "reason": st.column_config.TextColumn("Because", width=240),
            "count": st.column_config.NumberColumn("Deployments", format="localized", width=100),
        },
    )
    for sentence in _describe_nearest(found, key) if nearest else ():
        st.caption(sentence)


@remembered(64)
def _describe_nearest(_found: ServingExploration, key: str) -> list[str]:
    """Return a sentence on the nearest miss for each reason."""
    rows = {code: _found.evaluate_ids([number]).iloc[0].to_dict() for code, number in _found.nearest.items()}
    return [
        f"{by_code(code).label}, nearest: {deployment_name(row)}. {row['reason_text']}" for code, row in rows.items()
    ]
