"""A server of the person's own on the Serving page: its command or manifest, its figures, and the best next to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link.document_validation import Refused
from dashboard.widgets.upload import file_field, read_file
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value
from engine import launch
from engine.questions.serving_launch import SETTING_LABELS, assumptions_of_settings, deployment_rows, open_remarks
from engine.serving import FIELDS, ServingExploration, by_name, deployment_name, evaluate

__all__ = ["draw_own_server"]

MOST_MEGABYTES: Final = 1
_ENDINGS: Final = ("sh", "txt", "yaml", "yml", "slurm", "sbatch")
_SHOWN: Final = (
    "tokens_per_s_per_processor",
    "tokens_per_s_per_user",
    "time_to_first_token",
    "time_per_output_token",
    "memory_total",
)
_OPEN: Final[Mapping[str, tuple[int, ...]]] = {"weight_bits": (16, 8, 4), "kv_bits": (16, 8, 4)}
"""Fields that configurations leave open, with their choices; a batch is any number."""
_MOST_SENTENCES: Final = 12


@st.fragment
def draw_own_server(found: ServingExploration, best: Mapping[str, Any]) -> None:
    """Draw the field for a command or manifest, and the deployment in it.

    Args:
        found: the page's exploration, whose system and lengths count.
        best: the page's deployment, for comparison.
    """
    with st.expander("Read your own server", icon=":material/upload_file:", key="serving_own"):
        file = file_field(
            f"Script, manifest or engine YAML, up to {MOST_MEGABYTES} MB",
            _ENDINGS,
            "serving_own_file",
            MOST_MEGABYTES,
            help="vLLM, SGLang and TensorRT-LLM; Kubernetes, llm-d, Dynamo and srt-slurm. Nothing in it is run.",
        )
        name, content = ("", b"") if file is None else (file.name, file.getvalue())
        if file is None:
            text = st.text_area(
                "Or paste a command or manifest",
                key="serving_own_text",
                height=120,
                max_chars=MOST_MEGABYTES * 1_000_000,
                placeholder="vllm serve openai/gpt-oss-120b --tensor-parallel-size 4",
            )
            name, content = "The pasted text", (text or "").encode()
        if not content.strip():
            return
        try:
            reading = read_file(launch.read_engine_text, content, name)
            _draw_reading(reading, found, best)
        except (Refused, ValueError) as problem:
            st.error(literal(str(problem)), icon=":material/error:")


def _draw_reading(reading: launch.EngineReading, found: ServingExploration, best: Mapping[str, Any]) -> None:
    gpus = f"{reading.gpus:,} GPUs" if reading.gpus else "an open number of GPUs"
    network = reading.model_name or reading.model or "a model that it does not name"
    st.html(markup.head(f"{reading.title}: {network} on {gpus}", f"{reading.form}, arguments of {reading.version}"))
    lengths = {"prompt": found.space.prompt, "output": found.space.output}
    stated: dict[str, int | float] = {name: value for name, value in lengths.items() if name in reading.left}
    stated |= _ask_open_fields(reading)
    rows = deployment_rows(reading, stated)
    labels = {**SETTING_LABELS, **{column.name: column.label for column in FIELDS}}
    for role, row in rows.items():
        if role:
            st.html(markup.head(f"{role.capitalize()} pool"))
        st.html(markup.chips([(labels.get(name, name), str(value)) for name, value in row.items()]))
    if reading.rejected_by_us is not None:
        st.warning(literal(f"No figures: {reading.rejected_by_us}."), icon=":material/block:")
    else:
        _draw_figures(reading, rows, found, best)
    _draw_sentences(launch.LIST_TITLES["not_modelled"], [*reading.not_modelled, *reading.without_effect])
    _draw_sentences("Not read", reading.unread)
    _draw_sentences("Remarks", open_remarks(reading, stated))


def _ask_open_fields(reading: launch.EngineReading) -> dict[str, int | float]:
    """Draw a field for each open one that figures need; return the values."""
    stated: dict[str, int | float] = {}
    asked = [name for name in ("batch", *_OPEN) if name in reading.left]
    drafting = reading.draft or {}
    is_acceptance_open = "accepted_tokens" not in drafting and bool(drafting.get("draft_model") or reading.mtp_tokens)
    if not asked and not is_acceptance_open:
        return stated
    with st.container(horizontal=True, gap="small"):
        for name in asked:
            label, key = f"{by_name(name).label} (open)", f"serving_own_{name}"
            if name in _OPEN:
                choices = list(_OPEN[name])
                hint = reading.weight_bits_hint if name == "weight_bits" else None
                index = choices.index(hint) if hint in choices else None
                value = st.selectbox(label, choices, index=index, key=key, width=180, placeholder="State it")
            else:
                value = st.number_input(label, 1, 2**20, None, key=key, width=180, placeholder="State it")
            if value is not None:
                stated[name] = int(value)
        if is_acceptance_open:
            label = f"{SETTING_LABELS['acceptance_rate']} (open)"
            share = st.number_input(
                label, 0.0, 1.0, None, 0.05, key="serving_own_acceptance", width=180, placeholder="State it"
            )
            if share is not None:
                stated["acceptance_rate"] = float(share)
    return stated


def _draw_figures(
    reading: launch.EngineReading,
    rows: Mapping[str, Mapping[str, Any]],
    found: ServingExploration,
    best: Mapping[str, Any],
) -> None:
    """Draw the figures of every pool on the page's system, and of the page's deployment."""
    names = [column.name for column in FIELDS]
    open_names = sorted({name for row in rows.values() for name in names if name not in row} - _with_defaults())
    if open_names:
        told = ", ".join(by_name(name).label.lower() for name in open_names)
        st.info(literal(f"State {told} to see figures."), icon=":material/help:")
        return
    model = found.model if reading.model_name is None else reading.model_name
    where = found.system.title or found.system.name
    for role, row in rows.items():
        table = pd.DataFrame([{name: row[name] for name in names if name in row}])
        (figures,) = evaluate(
            model, found.system, table, price=found.price, assumptions=assumptions_of_settings(row)
        ).to_dict("records")
        if figures["status"] != "ok":
            st.warning(literal(str(figures["reason_text"])), icon=":material/block:")
            continue
        st.html(markup.head(f"{role.capitalize()} pool" if role else "Your server", f"on {where}, modelled"))
        st.html(markup.facts([(by_name(name).label, format_value(by_name(name), figures[name])) for name in _SHOWN]))
    if reading.pools is not None:
        st.caption("Each pool is evaluated as if it processed prompts and generated tokens.")
    if reading.model_name not in (None, found.model.name):
        st.caption(literal(f"The page is about {found.model.title or found.model.name}; choose the other model above."))
    else:
        st.html(markup.head(f"On this page: {deployment_name(best)}", f"{found.space.num_procs:,} GPUs"))
        st.html(markup.facts([(by_name(name).label, format_value(by_name(name), best[name])) for name in _SHOWN]))
    if reading.model_name is None:
        st.caption(literal(f"The model is not known here; figures are of {found.model.title or found.model.name}."))


def _with_defaults() -> set[str]:
    """Return fields that evaluation fills in by itself and no configuration states."""
    return {"engine", "attention_bits", "compute_bits"}


def _draw_sentences(heading: str, sentences: Sequence[str]) -> None:
    if not sentences:
        return
    st.html(markup.head(heading))
    more = len(sentences) - _MOST_SENTENCES
    lines = [f"- {literal(each)}" for each in sentences[:_MOST_SENTENCES]]
    st.caption("\n".join([*lines, *([f"- and {more} more"] if more > 0 else [])]))
