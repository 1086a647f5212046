"""Phases of a run on the page: their part of the link, their fields, and ready examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.catalogue import named_model
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.plan_run.link import PAGE_NAME, RunPhasesLink
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_several, draw_whole
from engine.lifetime.ready import READY_LIVES, ready_life

__all__ = ["draw_phases", "link_of_life", "phase_documents", "read_phases"]

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


def phase_documents(link: RunPhasesLink, tokens: float, model: str) -> list[dict[str, Any]]:
    """Return the phases of a question.

    Args:
        link: of the page.
        tokens: of pre-training.
        model: that is trained.
    """
    lengths = {"mean": float(link.sft_mean), "cap": link.sft_cap}
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "pretrain": lambda: {"tokens": tokens},
        "sft": lambda: {"tokens": link.sft_tokens * 1e9, "lengths": lengths},
        "lora": lambda: {"tokens": link.lora_tokens * 1e9, "lengths": lengths, "adapter_rank": link.lora_rank},
        "rl": lambda: {
            "steps": link.rl_steps,
            "prompts": link.rl_prompts,
            "group": link.rl_group,
            "prompt_tokens": link.rl_prompt,
            "response": {"mean": float(link.rl_mean), "cap": link.rl_cap},
        },
        "serve": lambda: _service(link, model),
    }
    return [{"kind": kind, **makers[kind]()} for kind in makers if kind in link.phases]


def _service(link: RunPhasesLink, model: str) -> dict[str, Any]:
    load: dict[str, Any] = {"rate": link.serve_rate}
    if link.serve_load == "users":
        load = {"users": float(link.serve_users), "think_s": link.serve_think}
    found = {"when": link.serve_when, "prompt": link.serve_prompt, "output": link.serve_output, **load}
    if link.serve_when == "after":
        return {**found, "days": link.serve_days}
    return {**found, **({"model": named_model(link.serve_model)} if link.serve_model != model else {})}


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


def link_of_life(life: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the link's values of a question with at most one phase of each kind; None removes a parameter.

    Args:
        life: the question as JSON has it, with the fields that the page has.
    """
    values: dict[str, Any] = dict.fromkeys((*RunPhasesLink.model_fields, *OTHERS))
    by_kind = {phase["kind"]: phase for phase in life["phases"]}
    values |= {
        "model": life["model"],
        "systems": ",".join(offer["system"] for offer in life["systems"]),
        "prices": ";".join(_price(offer) for offer in life["systems"] if "usd_low" in offer) or None,
        "batch": life["max_batch_size"],
        "days": life.get("deadline_days"),
        "budget": life["budget_usd"] / 1e3 if "budget_usd" in life else None,
        "gpus": life.get("num_procs"),
        "goal": "gpus" if "num_procs" in life else "both" if "budget_usd" in life else "deadline",
        "phases": ",".join(by_kind),
        "most": life["systems"][0].get("most_procs"),
    }
    if "pretrain" in by_kind:
        values["tokens"] = by_kind["pretrain"]["tokens"] / 1e9
    if "sft" in by_kind:
        sft = by_kind["sft"]
        values |= {
            "sft_tokens": sft["tokens"] / 1e9,
            "sft_mean": sft["lengths"]["mean"],
            "sft_cap": sft["lengths"]["cap"],
        }
    if "rl" in by_kind:
        rl = by_kind["rl"]
        values |= {f"rl_{name}": rl[name] for name in ("steps", "prompts", "group")}
        values |= {"rl_prompt": rl["prompt_tokens"], "rl_mean": rl["response"]["mean"], "rl_cap": rl["response"]["cap"]}
    if "serve" in by_kind:
        serve = by_kind["serve"]
        names = {"when": "when", "prompt": "prompt", "output": "output", "rate": "rate", "users": "users"}
        names |= {"think_s": "think", "days": "days", "model": "model"}
        values |= {f"serve_{link}": serve[name] for name, link in names.items() if name in serve}
        values["serve_load"] = "users" if "users" in serve else "rate"
    return {f"{PAGE_NAME}_{name}": None if value is None else _text(value) for name, value in values.items()}


OTHERS: Final = ("model", "systems", "prices", "batch", "days", "budget", "gpus", "goal", "tokens", "datatype")
"""Parameters of the page that an example replaces besides those of phases."""


def _price(offer: Mapping[str, Any]) -> str:
    return f"{offer['system']}~rent~{_text(offer['usd_low'])}~{_text(offer.get('usd_high', offer['usd_low']))}~"


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)
