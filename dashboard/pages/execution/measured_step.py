"""The step of a profiler trace beside the prediction: what explains the difference, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link.document_validation import Refused
from dashboard.widgets.upload import files_field, read_file
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, format_value, percent
from engine.traces import StepBesideModel, StepTerms, Trace, TraceError, compare_step, read_content

__all__ = ["draw_measured_step", "read_steps"]

MOST_MEGABYTES: Final = 200
"""Largest file; the command reads larger ones."""
TIME: Final = "total_time"


def draw_measured_step(row: dict[str, Any]) -> None:
    """Draw the upload, and the step of its trace beside the prediction.

    Args:
        row: the execution with its statistics.
    """
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("A measured step beside this one", "from a profiler trace"))
        files = files_field(
            f"Profiler traces, one per rank, up to {MOST_MEGABYTES} MB",
            ["json", "gz", "sqlite"],
            "execution_trace",
            MOST_MEGABYTES,
            help="JSON of PyTorch's profiler, also packed, or an export of Nsight Systems as SQLite. Larger files: "
            "`shardscape trace FILE --execution FILE`.",
        )
        if not files:
            st.caption(
                "The parts of a measured step add up as the predicted ones do: computation by phase, communication "
                "that nothing hides by group, copies and idle time. What differs is named, with what to try."
            )
            return
        try:
            steps, remarks = read_file(read_steps, [(file.name, file.getvalue()) for file in files])
        except (Refused, TraceError) as problem:
            st.error(literal(str(problem)), icon=":material/error:")
            return
        names = list(steps)
        chosen = names[0]
        if len(names) > 1:
            chosen = st.selectbox("Rank", names, key="execution_trace_rank", width=180)
        _draw_comparison(steps[chosen], compare_step(steps[chosen], row))
        for remark in remarks:
            st.caption(literal(remark))


def read_steps(contents: Sequence[tuple[str, bytes]]) -> tuple[dict[str, StepTerms], list[str]]:
    """Return the median step of each rank, and sentences on what was left out or assumed.

    Args:
        contents: name and content of each file.

    Raises `Refused` with one sentence.
    """
    try:
        found = read_content(contents)
    except TraceError as problem:
        raise Refused(str(problem)) from None
    if not isinstance(found, Trace):
        raise Refused("Summaries and logs of timers have no overlap to compare; give a trace of a rank.")
    remarks = list(found.remarks)
    if len(found.ranks) > 1:
        compared = found.compare_ranks()
        if compared.straggler is not None:
            remarks.insert(0, f"The others wait for rank {compared.names[compared.straggler]}, which computes longer.")
    return {str(name): step for name, step in zip(found.rank_names, found.terms(), strict=True)}, remarks


def _draw_comparison(step: StepTerms, compared: StepBesideModel) -> None:
    for sentence in compared.sentences:
        st.markdown(literal(sentence))
    rows = [*compared.rows, None]
    shown = [
        (row.name, row.measured_s, row.predicted_s)
        if row is not None
        else ("Step", compared.measured_s, compared.predicted_s)
        for row in rows
    ]
    st.dataframe(
        pd.DataFrame(
            {
                "Part": [name for name, *_ in shown],
                "measured": [format_value(TIME, measured) for _, measured, _ in shown],
                "predicted": [format_value(TIME, predicted) for *_, predicted in shown],
                "difference": [
                    f"{'+' if measured >= predicted else '−'}{format_value(TIME, abs(measured - predicted))}"
                    for _, measured, predicted in shown
                ],
            }
        ),
        hide_index=True,
        height="content",
        row_height=28,
        key="execution_trace_parts",
        alt="Parts of the measured step beside the predicted ones",
    )
    spread = f", whose lengths differ by {percent(step.spread)}" if step.num_steps > 1 else ""
    st.caption(
        f"{literal(step.name)}, the median of {counted(step.num_steps, 'step')}{spread}. Predicted parts are of the "
        "slowest stage of the pipeline. A profiled step takes longer than one without the profiler."
    )
