"""Phases of a run in links: each kind once, as a document, as phases of a question, and from a question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from dashboard.link.catalogue import named_model
from engine.questions.documents.run_phases import PHASE_WORDS
from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Number, Whole

__all__ = ["RunPhasesLink", "link_of_life", "phase_documents"]


Billions = Annotated[float, Number(1e-3, 9_999_999)]
Tokens = Annotated[int, Whole(1, 9_999_999)]


class RunPhasesLink(Document):
    """Parameters of the phases of a run, each kind once and in this order."""

    phases: Annotated[
        list[Literal["pretrain", "sft", "lora", "rl", "serve"]],
        Asked("Phases", words={**PHASE_WORDS, "rl": "RL", "serve": "Serve"}),
    ] = Field(default=["pretrain"], description="Phases in their order; each may have its own number of GPUs.")
    most: Annotated[int, Whole(1, 2**20), Asked("GPUs available")] = 4_096
    sft_tokens: Annotated[Billions, Asked("SFT tokens, bn")] = 1.0
    sft_mean: Annotated[Tokens, Asked("Mean sample")] = Field(default=800, description="Tokens of a sample.")
    sft_cap: Annotated[Tokens, Asked("Longest sample")] = Field(default=4_096, description="Tokens of a sample.")
    lora_tokens: Annotated[Billions, Asked("LoRA tokens, bn")] = 1.0
    lora_rank: Annotated[int, Whole(1, 2**16), Asked("Rank")] = 16
    rl_steps: Annotated[int, Whole(1, 9_999_999), Asked("RL steps")] = 500
    rl_prompts: Annotated[int, Whole(1, 2**20), Asked("Prompts")] = Field(default=128, description="Of a step.")
    rl_group: Annotated[int, Whole(1, 65_536), Asked("Responses each")] = Field(
        default=16, description="Responses to a prompt."
    )
    rl_prompt: Annotated[Tokens, Asked("Prompt length")] = 256
    rl_mean: Annotated[Tokens, Asked("Mean response")] = Field(
        default=1_500, description="Tokens; response lengths decide the time of a step."
    )
    rl_cap: Annotated[Tokens, Asked("Longest response")] = 4_096
    serve_when: Annotated[
        Literal["after", "meanwhile"], Asked("Serve", words={"after": "Afterwards", "meanwhile": "Meanwhile"})
    ] = "after"
    serve_load: Annotated[Literal["rate", "users"], Asked("Load", words={"rate": "Requests/s", "users": "Users"})] = (
        "rate"
    )
    serve_rate: Annotated[float, Number(1e-3, 9_999_999), Asked("Requests/s")] = 20.0
    serve_users: Annotated[int, Whole(1, 9_999_999), Asked("Users")] = 2_000
    serve_think: Annotated[float, Number(0, 86_400), Asked("Pause, s")] = Field(
        default=20.0, description="Of a user between requests."
    )
    serve_prompt: Annotated[Tokens, Asked("Prompt length")] = 1_024
    serve_output: Annotated[Tokens, Asked("Output length")] = 256
    serve_days: Annotated[float, Number(0, 36_500), Asked("Days paid")] = Field(
        default=30.0, description="Days of serving that count in the cost."
    )
    serve_model: Annotated[str, Asked("Served model")] = Field(
        default="", description="Served meanwhile; the trained one is there only afterwards."
    )


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
    return {f"plan_run_{name}": None if value is None else _text(value) for name, value in values.items()}


OTHERS: Final = ("model", "systems", "prices", "batch", "days", "budget", "gpus", "goal", "tokens", "datatype")
"""Other parameters of the page that an example replaces."""


def _price(offer: Mapping[str, Any]) -> str:
    return f"{offer['system']}~rent~{_text(offer['usd_low'])}~{_text(offer.get('usd_high', offer['usd_low']))}~"


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)
