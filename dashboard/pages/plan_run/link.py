"""Parameters of the Plan a run page in links besides its question, declared once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.documents.run_phases import PHASE_WORDS
from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Number, Whole

__all__ = ["PAGE_NAME", "PlanRunLink", "RunPhasesLink"]

PAGE_NAME: Final = "plan_run"


class PlanRunLink(Document):
    """Parameters of the page besides its question: the goal in the units of the page, systems and prices."""

    goal: Annotated[
        Literal["deadline", "budget", "both", "gpus", "most"],
        Asked(
            "Goal",
            words={
                "deadline": "Deadline",
                "budget": "Budget",
                "both": "Deadline and budget",
                "gpus": "GPUs",
                "most": "Most tokens",
            },
        ),
    ] = "deadline"
    tokens_bn: Annotated[float, Number(1e-3, 9_999_999), Asked("Tokens, bn", parameter="tokens")] = 1_000.0
    days: Annotated[float, Number(1e-3, 36_500), Asked("Days")] = 30.0
    budget_kusd: Annotated[float, Number(1e-3, 9_999_999), Asked("Budget, thousand USD", parameter="budget")] = 1_000.0
    gpus: Annotated[int, Whole(1, 2**20), Asked("GPUs")] = 512
    systems: Annotated[list[str], Asked("Systems")] = Field(
        default_factory=list, description="GPUs that can be had; prices are under Prices."
    )
    prices: Annotated[str, Asked("Prices")] = Field(
        default="", description="System~terms~lowest~highest~reserved days of each own price, with a semicolon between."
    )


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
