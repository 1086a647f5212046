"""Measured servers on the Serving page: the nearest to a deployment, and results of the person's own benchmarks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

import hardware
from dashboard.charts.elements import markup
from dashboard.compat.caches import remembered
from dashboard.link.document_validation import Refused
from dashboard.pages.serving.own_factors import draw_factors
from dashboard.widgets.upload import files_field, read_file
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value, signed_percent
from dashboard.words.serving import WORDS
from engine.questions.servers import SERVERS_NOTE, list_nearest_servers
from engine.serving import FIELDS, ServingExploration, by_name, deployment_name
from engine.validation.serving.benchmark_files import ServingBenchmark, read_server_file
from engine.validation.serving.comparison import COMPARED, BenchmarkComparison, compare_benchmark, measure_factors
from engine.validation.serving.nearest_servers import SERVER_SOURCE, SERVER_WEIGHTS
from hardware import Calibration

__all__ = ["draw_measured_servers"]

MOST_MEGABYTES: Final = 20
_ENDINGS: Final = ("json", "jsonl", "txt")
_NEAREST: Final = 6
_HEADERS: Final = {
    "time_to_first_token": ("First token, ms", 1e3),
    "time_per_output_token": ("Per token, ms", 1e3),
    "tokens_per_s": ("Output, tokens/s", 1.0),
}


@st.fragment
def draw_measured_servers(found: ServingExploration, row: Mapping[str, Any]) -> None:
    """Draw the card.

    Args:
        found: the page's exploration.
        row: the chosen deployment with its figures.
    """
    with st.expander("Compare with measured servers", icon=":material/speed:", key="serving_measured"):
        engine = WORDS[str(row["engine"])]
        st.html(
            markup.head(
                f"{deployment_name(row)}, {engine.lower() if engine == 'Any engine' else engine}", "as chosen above"
            )
        )
        files = files_field(
            "Results of your benchmarks of this deployment",
            _ENDINGS,
            "serving_results",
            MOST_MEGABYTES,
            help="JSON of vLLM bench serve, SGLang bench_serving, AIPerf, genai-perf or GuideLLM. Batch, prompt and "
            "output are those of each result. Or factors of `shardscape servers --out`.",
        )
        benchmarks: list[ServingBenchmark] = []
        for place, file in enumerate(files):
            try:
                read = read_file(read_server_file, file.getvalue(), file.name)
                if isinstance(read, Calibration):
                    draw_factors(found, read, f"serving_adjust_{place}")
                else:
                    benchmarks += read
            except (Refused, ValueError) as problem:
                st.error(literal(str(problem)), icon=":material/error:")
        if benchmarks:
            try:
                _draw_comparison(found, row, benchmarks)
            except ValueError as problem:
                st.error(literal(str(problem)), icon=":material/error:")
        _draw_nearest(_find_nearest(found, row))


def _find_nearest(found: ServingExploration, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields = json.dumps({column.name: row[column.name] for column in FIELDS}, default=int)
    return _remember_nearest(found, row, f"{found.model.name} {found.system.name} {fields}")


@remembered(64)
def _remember_nearest(_found: ServingExploration, _row: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return list_nearest_servers(_found.model, _found.system, _row, _NEAREST)


def _draw_comparison(found: ServingExploration, row: Mapping[str, Any], benchmarks: Sequence[ServingBenchmark]) -> None:
    """Draw results against predictions without factors, and the factors that they mean."""
    fields = {column.name: row[column.name] for column in FIELDS}
    compared = [
        compare_benchmark(found.model, found.system, fields, each, assumptions=found.assumptions) for each in benchmarks
    ]
    st.dataframe(
        pd.DataFrame([line for each in compared for line in _comparison_rows(each)]),
        hide_index=True,
        height="content",
        row_height=28,
        key="serving_compared",
        alt=f"{len(compared)} results of benchmarks against predictions",
    )
    for each in compared:
        for remark in each.benchmark.remarks:
            st.caption(literal(f"{each.benchmark.label}: {remark}"))
        if not each.figures:
            st.warning(literal(f"{each.benchmark.label}: {each.row['reason_text']}"), icon=":material/block:")
    factors = measure_factors(found.model, found.system, compared)
    if factors is None:
        return
    draw_factors(found, factors, "serving_adjust")
    st.download_button(
        "Factors as a calibration",
        json.dumps(hardware.calibration_document(factors), indent=2),
        f"{found.system.name}_factors.json",
        "application/json",
        key="serving_factors",
        icon=":material/download:",
        help="For `--factors FILE` of `shardscape inference`, `service` and `plan day`: measured over predicted.",
    )
    if str(row["engine"]) == "generic":
        st.caption("These are factors on any engine. Choose your engine under Choices for its own.")


def _comparison_rows(each: BenchmarkComparison) -> list[dict[str, Any]]:
    load = f"batch {each.row['batch']:,}, {each.row['prompt']:,} + {each.row['output']:,} tokens"
    lines = []
    for name, figure in each.figures.items():
        column = by_name(name)
        between = ""
        if figure.low is not None and figure.high is not None:
            between = f"{format_value(column, figure.low)} to {format_value(column, figure.high)}"
        lines.append(
            {
                "Result": each.benchmark.label,
                "Load": load,
                "Figure": column.label,
                "Measured": format_value(column, figure.measured),
                "Predicted": format_value(column, figure.predicted),
                "Difference": signed_percent(figure.ratio - 1.0),
                "Range": between,
                "Verdict": figure.verdict,
            }
        )
    return lines


def _draw_nearest(servers: Sequence[Mapping[str, Any]]) -> None:
    """Draw the nearest measured servers, each with its prediction."""
    st.html(markup.head("Nearest measured servers", "measured, and predicted with the same constants"))
    columns: dict[str, list[Any]] = {
        "Model": [each["library_model"] for each in servers],
        "GPUs": [f"{each['tensor_par'] * each['replicas']:,} × {each['gpu']}" for each in servers],
        "Engine": [f"{WORDS[each['engine']]} {each['engine_version'] or ''}".strip() for each in servers],
        "Layout": [deployment_name({**each, "pipeline_par": 1}) for each in servers],
        "Bits": [f"{each['weight_bits']}, KV {each['kv_bits']}" for each in servers],
        "Tokens": [f"{each['prompt']:,} + {each['output']:,}" for each in servers],
    }
    settings: dict[str, Any] = {}
    for name in COMPARED:
        label, factor = _HEADERS[name]
        off = f"Off, {label.split(',')[0].lower()}"
        columns[label] = [factor * each["measured"][name] for each in servers]
        columns[off] = [signed_percent(each["difference"][name]) for each in servers]
        settings[label] = st.column_config.NumberColumn(format="%.4g", help="Measured.")
        settings[off] = st.column_config.TextColumn(help="Measured over predicted, less 1.")
    columns["Distance"] = [each["distance"] for each in servers]
    weights = ", ".join(f"{name} {weight:g}" for name, weight in SERVER_WEIGHTS.items())
    settings["Distance"] = st.column_config.NumberColumn(
        format="%.2f", help=f"Sum over parts with these weights: {weights}. Sizes count in doublings."
    )
    st.dataframe(
        pd.DataFrame(columns),
        hide_index=True,
        height="content",
        row_height=28,
        key="serving_nearest",
        column_config=settings,
        alt=f"The {len(servers)} measured servers that are nearest to this deployment, with predictions",
    )
    st.caption(literal(f"{SERVERS_NOTE} Source: {SERVER_SOURCE}."))
