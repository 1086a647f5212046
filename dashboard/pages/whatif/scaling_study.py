"""The What-if page's card on the system's size: a few likely sizes, or every size of a range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.charts.what_if.scaling_study import FALLS, MOST_BARS, Size, fall_off, size_chart, slower
from dashboard.link import state
from dashboard.pages.whatif.inputs import parse_ends
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.controls import given, key_for, whole, whole_field
from dashboard.widgets.hardware_changes import put
from dashboard.widgets.job_card import job_card
from dashboard.widgets.link_fields import draw_segments
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, counted, percent
from engine import Scenario

if TYPE_CHECKING:
    from dashboard.jobs.studies import StudyJob
    from dashboard.pages.whatif.board import WhatIfBoard

__all__ = ["card"]

LIKELY, EVERY = "likely", "every"
WHICH: Final = {LIKELY: "Likely sizes", EVERY: "Every size"}
_LARGEST: Final = 999_999_999_999
"""Largest entry in a field of the range; the engine checks the number of processors."""
_FIRST: Final = 128
"""Most sizes in the suggested range; it takes some seconds."""


def card(board: WhatIfBoard) -> None:
    """Draws the card."""
    ends = board.asked.ends
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(head("System size"))
        st.space("stretch")
        _choose_kind(board, EVERY if ends else LIKELY)
    if ends is not None:
        _draw_range(ends)
    if board.sizes is None:
        st.warning(literal(board.asked.problem), icon=":material/error:")
    else:
        _draw_found(board, board.sizes)


def _choose_kind(board: WhatIfBoard, which: str) -> None:
    """Draw the choice between likely sizes and a range."""
    key = key_for("_whatif_range_which", which)

    def changed() -> None:
        _set_range(_first_range(board.scenario) if given(key) == EVERY else None)

    st.segmented_control(
        "Sizes",
        list(WHICH),
        format_func=WHICH.__getitem__,
        default=which,
        key=key,
        on_change=changed,
        required=True,
        label_visibility="collapsed",
    )


def _draw_range(ends: tuple[int, int, int]) -> None:
    """Draw the fields of a range."""
    names = ("From, GPUs", "To, GPUs", "Step, GPUs")
    keys = [key_for(f"_whatif_range_{place}", value) for place, value in enumerate(ends)]

    def typed(place: int) -> None:
        new = given(keys[place])
        if new is not None:
            now = parse_ends() or ends  # two fields may change before either is redrawn
            _set_range((*now[:place], whole(new), *now[place + 1 :]))

    for place, column in enumerate(st.columns(3, gap="small")):
        with column:
            whole_field(names[place], 0, _LARGEST, ends[place], keys[place], on_change=typed, args=(place,))


def _set_range(ends: tuple[int, ...] | None) -> None:
    state.set_url_value("whatif_range", None if ends is None else f"{ends[0]}..{ends[1]}:{ends[2]}")


def _first_range(scenario: Scenario) -> tuple[int, int, int]:
    """Return the suggested range: whole nodes up to twice the scenario's size."""
    node = scenario.system.node_size
    most = 2 * scenario.num_procs
    step = node if node < most else 1
    step *= math.ceil(most / step / _FIRST)
    return step, max(step, most // step * step), step


def _draw_found(board: WhatIfBoard, run: StudyJob) -> None:
    sizes = [
        Size(
            int(point.values["procs"]),
            point.rate,
            point.efficiency,
            "·".join(map(str, point.degrees[:2])) if point.degrees else "",
            point.problem,
        )
        for point in list(run.found)
    ]
    counts, here = board.asked.counts, int(board.changes.get("procs", board.scenario.num_procs))
    view = board.view.link.size_show
    chart = board.chart(
        run,
        (here, view),
        lambda: size_chart(
            sizes,
            board.mode,
            here=here,
            every=counts,
            show="per GPU" if view == "each" else "total",
            narrow=board.narrow,
        ),
    )
    show(chart, "whatif_sizes", on_click=lambda: _pick_size(board))
    job_card(run, mark="sizes")
    batch = int(board.around.get("batch", board.scenario.max_batch_size))
    kept = f"of at most {counted(batch, 'sequence')}" if board.asked.batch == "kept" else "in proportion to the GPUs"
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        draw_segments(board.view.fields["size_show"], label="Figure")
        draw_segments(board.view.fields["batch"], label="Batch")
    told = _describe_marks(board, sizes, here) + _describe_sizes(board, run, sizes)
    role = board.view.figures.question.figures_of
    fastest = sum(bool(point.remark) for point in list(run.found))
    if fastest:
        told += (
            f" {counted(fastest, 'size')} {'shows' if fastest == 1 else 'show'} the fastest: nothing is recommended."
        )
    st.caption(f"Throughput of the {role} execution at each size with a batch {kept}.{told}")


def _describe_marks(board: WhatIfBoard, sizes: list[Size], here: int) -> str:
    """Return a sentence on highlighted marks of the chart."""
    runs = any(size.procs == here and math.isfinite(size.rate) for size in sizes)
    # Around the base the hardware is the scenario's, even if the what-if has another number of GPUs.
    what = "this scenario" if here == board.scenario.num_procs else "the what-if's number of GPUs"
    told = f" Highlighted: {'this what-if' if board.around else what}." if runs else ""
    if len(board.asked.counts) > MOST_BARS:
        told += " Ring: a smaller machine does more." if slower(sizes) else ""
        told += " Cross: nothing runs." if any(not math.isfinite(size.rate) for size in sizes) else ""
    return told


def _describe_sizes(board: WhatIfBoard, run: StudyJob, sizes: list[Size]) -> str:
    """Return a summary of the sizes, once all are known."""
    total = len(board.asked.counts)
    if run.state != "done":
        return f" So far {len(sizes):,} of {total:,} sizes: the best may change." if sizes else ""
    if not board.centre_rate > 0:
        enough = min((size.procs for size in sizes if math.isfinite(size.rate)), default=None)
        # Not "from N GPUs on": a larger number may have no layout that fits.
        return f" The smallest that runs has {counted(enough, 'GPU')}." if enough else " Nothing runs at any of them."
    falls, beaten = fall_off(sizes), slower(sizes)
    share = percent(FALLS, 0)
    # Only of these sizes: sizes between them may do better.
    told = f" From {count(falls)} GPUs on, throughput per GPU is under {share} of the best." if falls else ""
    if beaten:
        verb = "does" if len(beaten) == 1 else "do"
        told += f" {len(beaten):,} of {total:,} sizes {verb} less than a smaller one."
    return told


def _pick_size(board: WhatIfBoard) -> None:
    if found := clicked("whatif_sizes"):
        put(board.scenario, "procs", float(found[0]))
        board.again()
