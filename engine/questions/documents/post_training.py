"""Question about post-training: how to run reinforcement learning of a model on a number of GPUs."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked, FieldKind
from engine.questions.scenario_documents import LIMITS_SCHEMA
from engine.questions.verb import Document, Named
from models.documents import Accepts, Number, Whole

__all__ = [
    "MODE_WORDS",
    "PHASE_WORDS",
    "JudgeChoices",
    "PostTrainingQuestion",
    "ResponseLengths",
    "RolloutChoices",
    "SpeculationChoices",
    "TrainingChoices",
]

MODE_WORDS: Final = {
    "any": "Any",
    "colocated": "Colocated",
    "one_step_off": "One step off",
    "asynchronous": "Asynchronous",
}
"""Modes on screen."""
PHASE_WORDS: Final = {
    "rollout": "Rollout",
    "reward": "Reward and tools",
    "judge": "Judge",
    "teacher": "Teacher",
    "log_probs": "Log-probabilities",
    "update": "Update",
    "other": "Other",
    "switch": "Switch",
    "synchronisation": "Synchronisation",
    "host": "Host, per GPU",
}
"""Phases of a step, and the host's memory, in words."""
METHOD_WORDS: Final = {"grpo": "GRPO", "dapo": "DAPO", "ppo": "PPO"}
SYNCHRONISATION_WORDS: Final = {
    "plain": "Tensor by tensor",
    "buckets": "Buckets",
    "broadcast": "Broadcast",
    "shards": "Shards by RDMA",
}
Tokens = Annotated[int, Whole(1, 2**30)]
Seconds = Annotated[float, Number(0, 1e6)]


class ResponseLengths(Document):
    """Law of the lengths of responses: mean and cap of a lognormal law, or measured lengths."""

    mean: Annotated[Annotated[float, Number(1, 2**30)] | None, Asked("Mean response", "tokens")] = Field(
        default=None, description="Mean length of the responses, as frameworks print it: capped ones included."
    )
    cap: Annotated[Tokens | None, Asked("Longest response", "tokens")] = Field(
        default=None, description="Length at which a response is stopped; the largest of `lengths` by default."
    )
    cv: Annotated[float, Number(0, 10), Asked("Spread of lengths")] = Field(
        default=1.0,
        description="Standard deviation over mean of the lengths without a cap. It decides how long the tail is; no "
        "published run states it.",
    )
    lengths: Annotated[list[Annotated[float, Number(1, 2**30)]] | None, Field(min_length=1, max_length=100_000)] = (
        Field(default=None, description="Measured lengths instead of mean and spread [tokens].")
    )


class RolloutChoices(Document):
    """Choices of the rollout: datatype, replicas and memory."""

    datatype: Annotated[
        Literal["bfloat16", "float8"], Asked("Rollout datatype", option="rollout-datatype", parameter="rollout")
    ] = Field(default="bfloat16", description="Datatype of the weights that generate.")
    tensor_par: Annotated[
        list[Annotated[int, Whole(1, 1024)]] | None,
        Asked("Rollout tensor parallel", option="rollout-tp", parameter="rollout_tp"),
    ] = Field(default=None, description="Tensor-parallel degrees of a replica; 1, 2, 4, ... 64 by default.")
    memory_share: Annotated[
        Annotated[float, Number(0.05, 1.0)] | None, Asked("Memory share", option="memory-share", parameter="share")
    ] = Field(
        default=None,
        description="Share of the memory that the engine may use; 0.6 by default on shared GPUs, 0.8 on its own.",
    )
    max_sequences: Annotated[int, Whole(1, 2**20), Asked("Requests at once", parameter="slots")] = Field(
        default=256, description="Most requests of a replica at once; 256 is the default of vLLM."
    )


class SpeculationChoices(Document):
    """Speculative decoding of the rollout: none without `accepted`."""

    accepted: Annotated[
        Annotated[float, Number(1, 64)] | None,
        Asked("Accepted tokens", option="accepted", parameter="accepted"),
    ] = Field(default=None, description="Tokens that a request gains per step, on average: measure yours.")
    drafted: Annotated[
        Annotated[int, Whole(1, 63)] | None, Asked("Drafted tokens", option="drafted", parameter="drafted")
    ] = Field(default=None, description="Tokens that are proposed per step and verified together; 3 by default.")
    draft_cost: Annotated[Annotated[float, Number(0, 10)] | None, Asked("Draft cost", parameter="draft_cost")] = Field(
        default=None, description="Time of drafting as a share of a step without it; 0.1 by default."
    )


class JudgeChoices(Document):
    """A judge: a model that reads prompt and response and scores each; none without `scored_by`."""

    scored_by: Annotated[
        Named | None, Asked("Judge model", option="judge", parameter="judge", option_help="Library name or JSON file.")
    ] = Field(default=None, description="Model that scores every response: a name, or a whole model document.")
    own_gpus: Annotated[
        Annotated[int, Whole(1, 2**20)] | None, Asked("Judge GPUs", option="judge-gpus", parameter="judge_gpus")
    ] = Field(
        default=None,
        description="GPUs of its own besides all others, which score while others generate; by default it runs on "
        "those of the rollout after it.",
    )
    answer_tokens: Annotated[
        Tokens | None, Asked("Judge answer", "tokens", option="judge-tokens", parameter="judge_tokens")
    ] = Field(default=None, description="Tokens that it writes per response; 256 by default.")


class TrainingChoices(Document):
    """Choices of the training side: datatype and limits of executions."""

    train_datatype: Annotated[str, Asked("Training datatype", option="datatype", parameter="datatype")] = Field(
        default="bfloat16", description="Datatype of the matrix arithmetic of training."
    )
    limits: Annotated[
        dict[str, Any],
        Accepts("an object with limits by field name"),
        Asked(
            "Training limits",
            option="limit",
            kind=FieldKind.LIMITS,
            metavar="FIELD=VALUES",
            option_help="Values of a field of the training execution, such as tensor_par=1,2. May be repeated.",
        ),
    ] = Field(
        default_factory=dict,
        description="What fields of the training execution may be; see `explore`. By default nothing is offloaded, and "
        "a microbatch is one pack.",
        json_schema_extra=LIMITS_SCHEMA,
    )


class PostTrainingQuestion(Document):
    """Question for the best way to run reinforcement learning: mode, split of GPUs, deployment and execution."""

    format: Literal["shardscape-post-training/1"] = "shardscape-post-training/1"
    model: Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    system: Annotated[Named, Asked("System", option_help="Library name or JSON file of the system.")] = Field(
        description="System: a name that `list_systems` has, or a whole system document."
    )
    num_procs: Annotated[int, Whole(1, 2**20), Asked("GPUs", option="procs", parameter="procs")] = Field(
        description="GPUs of rollout and training together."
    )
    method: Annotated[Literal["grpo", "dapo", "ppo"], Asked("Method", words=METHOD_WORDS)] = Field(
        default="grpo", description="PPO has a critic of the model's size; DAPO throws groups away, see `pass_rate`."
    )
    prompts: Annotated[int, Whole(1, 2**20), Asked("Prompts per step")] = Field(
        description="Prompts of a step; each has `group` responses."
    )
    group: Annotated[int, Whole(1, 65_536), Asked("Responses per prompt")] = Field(
        default=16, description="Responses to a prompt."
    )
    prompt_tokens: Annotated[Tokens, Asked("Prompt length", "tokens", option="prompt", parameter="prompt")] = Field(
        default=128, description="Tokens of a prompt."
    )
    response: Annotated[
        ResponseLengths,
        Asked(
            "Response lengths",
            metavar="MEAN:CAP[:CV]",
            option_help="Mean and cap of the response lengths, and their spread, 1 by default [tokens].",
        ),
    ] = Field(description="Law of the response lengths. They decide the answer: measure yours.")
    updates: Annotated[int, Whole(1, 65_536), Asked("Updates per step")] = Field(
        default=1, description="Optimizer steps per step: mini-batches times epochs."
    )
    reference: Annotated[bool | None, Asked("Reference model", option="reference")] = Field(
        default=None, description="Forward pass of a reference model; by default for GRPO and PPO, not for DAPO."
    )
    old_log_probs: Annotated[bool | None, Asked("Old log-probabilities", option="old-log-probs")] = Field(
        default=None, description="Forward pass before the updates; by default with more than one update per step."
    )
    pass_rate: Annotated[Annotated[float, Number(0, 1)] | None, Asked("Pass rate")] = Field(
        default=None,
        description="Probability that a response is right, for DAPO: groups that are all right or all wrong are "
        "generated again, 1 / (1 - q^n - (1 - q)^n) times as many; none is thrown away by default.",
    )
    launched: Annotated[float, Number(1, 16), Asked("Launched per kept")] = Field(
        default=1.0,
        description="Responses launched per kept one: the first to end are kept, the others are stopped, in modes that "
        "wait for the longest. Kept responses are shorter than all, which changes what is learnt.",
    )
    reward_s: Annotated[Seconds, Asked("Reward", "s")] = Field(
        default=0.0, description="Time of rewards that nothing hides."
    )
    tool_s: Annotated[Seconds, Asked("Tool calls", "s")] = Field(
        default=0.0, description="Time that a sample waits for tools in all its turns; it holds its slot."
    )
    steps: Annotated[int, Whole(1, 10_000_000), Asked("Steps")] = Field(default=500, description="Steps of the run.")
    mode: Annotated[Literal["any", "colocated", "one_step_off", "asynchronous"], Asked("Mode", words=MODE_WORDS)] = (
        Field(
            default="any",
            description="colocated: rollout and training take turns on all GPUs; one_step_off: each has its own GPUs "
            "and samples are one step old; asynchronous: the rollout never drains, samples are up to `staleness` old.",
        )
    )
    staleness: Annotated[Annotated[int, Whole(1, 1_000)] | None, Asked("Staleness", "steps")] = Field(
        default=None, description="Steps that a sample may be old in asynchronous mode; 8 by default."
    )
    split: Annotated[
        Annotated[list[Annotated[int, Whole(1, 2**20)]], Field(min_length=2, max_length=2)] | None,
        Asked(
            "Split of GPUs",
            metavar="TRAIN:ROLLOUT",
            option_help="GPUs that train and GPUs that generate; chosen by default.",
        ),
    ] = Field(default=None, description="GPUs that train and GPUs that generate; the best by default.")
    pack_to: Annotated[Tokens | None, Asked("Pack length", "tokens")] = Field(
        default=None, description="Tokens of a packed sequence; longest prompt and response by default."
    )
    teacher: Annotated[
        Named | None, Asked("Teacher model", option_help="Library name or JSON file of the teacher.")
    ] = Field(
        default=None,
        description="Model whose log-probabilities the responses are trained on (on-policy distillation): a forward "
        "pass on the GPUs that train.",
    )
    judge: JudgeChoices = Field(default_factory=JudgeChoices, description="Model that scores the responses.")
    speculation: SpeculationChoices = Field(
        default_factory=SpeculationChoices, description="Speculative decoding of the rollout."
    )
    helping: Annotated[bool, Asked("Helping GPUs")] = Field(
        default=False,
        description="GPUs that train generate too once their update is done, in modes with two pools (verl's "
        "`enable_switch`).",
    )
    rollout: RolloutChoices = Field(default_factory=RolloutChoices, description="Choices of the rollout.")
    training: TrainingChoices = Field(default_factory=TrainingChoices, description="Choices of the training side.")
    synchronisation: Annotated[
        Literal["plain", "buckets", "broadcast", "shards"],
        Asked("Weight synchronisation", words=SYNCHRONISATION_WORDS, option="sync", parameter="sync"),
    ] = Field(default="broadcast", description="Way to bring weights to a rollout on other GPUs.")
    framework: Annotated[
        Literal["nemo-rl", "verl"], Asked("Framework", words={"nemo-rl": "NeMo-RL", "verl": "verl"})
    ] = Field(default="nemo-rl", description="Framework whose constants count; verl has those of NeMo-RL but one.")
    release: Annotated[str | None, Asked("Release")] = Field(
        default=None, description='Release with a factor of its own, such as "0.6"; the newest by default.'
    )
    measured_step_s: Annotated[
        Annotated[float, Number(1e-3, 1e7)] | None, Asked("Own step", "s", option="own-step", parameter="own")
    ] = Field(
        default=None,
        description="A measured step of yours in this mode (and split): sets the factor of your software.",
    )
    software: Annotated[Annotated[float, Number(0.01, 100)] | None, Asked("Software factor")] = Field(
        default=None,
        description="Factor on the whole step in place of the release's, such as one that a step of your own set "
        "(`software` of the answer).",
    )
    price_usd_per_h: Annotated[
        Annotated[float, Number(0, 1e6)] | None, Asked("Price", "USD/h", option="price", parameter="price")
    ] = Field(default=None, description="Price of a GPU and hour; the range of the recorded prices by default.")
    sizes: Annotated[bool, Asked("Other sizes")] = Field(
        default=False, description="Compare the modes on a quarter, half and twice the GPUs too: where they cross."
    )
    changes: Annotated[bool, Asked("Changes")] = Field(
        default=False,
        description="Show the step of single changes in the fastest mode, at its split: rollout degree, 8 bits, "
        "requests at once, spread of lengths, staleness, GPUs moved, helping GPUs.",
    )
