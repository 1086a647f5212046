"""Phases of a run on the page: the fields of each, and ready examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.run_phases import RunPhasesLink, link_of_life
from dashboard.pages.plan_run.link import PAGE_NAME
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_several, draw_whole
from engine.lifetime.ready import READY_LIVES, ready_life

__all__ = ["draw_phases", "read_phases"]

WIDE: Final = 130
"""Width of a number [px]."""
SERVED_PARTS: Final = {"rate": ("serve_rate",), "users": ("serve_users", "serve_think")}
"""Fields of each kind of load."""
ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "sft": ("sft_tokens", "sft_mean", "sft_cap"),
    "lora": ("lora_tokens", "lora_rank", "sft_mean", "sft_cap"),
    "rl": ("rl_steps", "rl_prompts", "rl_group", "rl_prompt", "rl_mean", "rl_cap"),
}
"""Fields of each phase that trains."""


def read_phases(models: Mapping[str, str], model: str) -> LinkReader[RunPhasesLink]:
    """Return the reader of the phases' part of the link.

    Args:
        models: titles of models by name.
        model: that is trained.
    """
    reader = LinkReader(RunPhasesLink, PAGE_NAME)
    for name in RunPhasesLink.model_fields:
        is_model = name == "serve_model"
        reader.read(name, default=model if is_model else None, options=models if is_model else None)
    return reader


def draw_phases(link: RunPhasesLink, fields: Mapping[str, LinkField]) -> None:
    """Draw the choice of phases, the fields of each, and the ready examples.

    Args:
        link: of the phases.
        fields: of the page by name.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_several(fields["phases"])
        _draw_ready()
        if link.phases != ["pretrain"]:
            draw_whole(fields["most"], width=WIDE, help="Of each system; the GPUs of serving meanwhile are among them.")
    for kind in ROWS:
        if kind in link.phases:
            with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
                _draw_fields(ROWS[kind] if kind != "lora" or "sft" not in link.phases else ROWS[kind][:2], fields)
    if "serve" in link.phases:
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
            draw_segments(fields["serve_when"])
            draw_segments(fields["serve_load"])
            _draw_fields((*SERVED_PARTS[link.serve_load], "serve_prompt", "serve_output"), fields)
            if link.serve_when == "after":
                _draw_fields(("serve_days",), fields)
            else:
                draw_choice(fields["serve_model"], width=230)


def _draw_fields(names: tuple[str, ...], fields: Mapping[str, LinkField]) -> None:
    for name in names:
        if isinstance(fields[name].default, float):
            draw_decimal(fields[name], width=WIDE)
        else:
            draw_whole(fields[name], width=WIDE)


def _draw_ready() -> None:
    with st.popover(
        "Examples", icon=":material/playlist_add:", help="Ready lives of a model, which replace the inputs."
    ):
        for name, title in READY_LIVES.items():
            st.button(
                title,
                key=f"plan_run_ready_{name}",
                on_click=lambda chosen=name: state.set_url_values(link_of_life(ready_life(chosen))),
                width="stretch",
            )
