"""Question about fine-tuning: all weights, LoRA or QLoRA of a model on a data set."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked, FieldKind
from engine.questions.scenario_documents import LIMITS_SCHEMA
from engine.questions.verb import Document, Named
from models.documents import Accepts, Number, Text, Whole

__all__ = ["TUNING_WORDS", "DataSetLengths", "FineTuningQuestion"]

TUNING_WORDS: Final = {"any": "Any", "full": "All weights", "lora": "LoRA", "qlora": "QLoRA"}
"""Methods on screen."""
Tokens = Annotated[int, Whole(1, 2**30)]


class DataSetLengths(Document):
    """Law of the lengths of samples: mean and cap of a lognormal law, or measured lengths."""

    mean: Annotated[
        Annotated[float, Number(1, 2**30)] | None, Asked("Mean sample", "tokens", parameter="sample_mean")
    ] = Field(default=None, description="Mean length of the samples, prompt and answer together, cut ones included.")
    cap: Annotated[Tokens | None, Asked("Longest sample", "tokens", parameter="sample_cap")] = Field(
        default=None, description="Length at which a sample is cut; the largest of `lengths` by default."
    )
    cv: Annotated[float, Number(0, 10), Asked("Spread of samples", parameter="sample_cv")] = Field(
        default=1.0, description="Standard deviation over mean of the lengths before they are cut."
    )
    lengths: Annotated[list[Annotated[float, Number(1, 2**30)]] | None, Field(min_length=1, max_length=100_000)] = (
        Field(default=None, description="Measured lengths instead of mean and spread [tokens].")
    )


class FineTuningQuestion(Document):
    """Question for the best way to fine-tune a model on a data set: method, GPUs and execution."""

    format: Literal["shardscape-fine-tuning/1"] = "shardscape-fine-tuning/1"
    model: Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")] = Field(
        description="Model: a name that `list_models` has, or a whole model document."
    )
    system: Annotated[Named, Asked("System", option_help="Library name or JSON file of the system.")] = Field(
        description="System: a name that `list_systems` has, or a whole system document."
    )
    num_procs: Annotated[Annotated[int, Whole(1, 2**20)] | None, Asked("GPUs", option="procs", parameter="procs")] = (
        Field(default=None, description="GPUs; by default the fewest on which each method fits.")
    )
    method: Annotated[
        Literal["any", "full", "lora", "qlora"],
        Asked("Tuning", words=TUNING_WORDS, option="method", parameter="tuning"),
    ] = Field(
        default="any",
        description="full: all weights; lora: adapters on frozen weights of 16 bits; qlora: on frozen weights of 4 "
        "bits, whose memory is computed, but not its time; any: all three.",
    )
    samples: Annotated[int, Whole(1, 10**12), Asked("Samples")] = Field(description="Samples of the data set.")
    lengths: Annotated[
        DataSetLengths,
        Asked(
            "Sample lengths",
            metavar="MEAN:CAP[:CV]|FILE",
            option_help="Mean and cap of the sample lengths, and their spread, 1 by default [tokens]; or a file with "
            "a length per line.",
        ),
    ] = Field(description="Law of the sample lengths.")
    epochs: Annotated[float, Number(0.001, 10_000), Asked("Epochs")] = Field(
        default=1.0, description="Passes over the data set."
    )
    pack_to: Annotated[Tokens | None, Asked("Pack length", "tokens", option="pack-to", parameter="sample_pack")] = (
        Field(
            default=None,
            description="Tokens of a sequence that samples are packed into, without attention between them; the "
            "longest sample by default, rounded up to 256.",
        )
    )
    batch: Annotated[Annotated[int, Whole(1, 2**20)] | None, Asked("Batch", "packs")] = Field(
        default=None, description="Packs of an optimizer step; 32 by default, or all where the data set fills fewer."
    )
    batch_samples: Annotated[Annotated[int, Whole(1, 2**30)] | None, Asked("Batch in samples", "samples")] = Field(
        default=None, description="Samples of an optimizer step on average, instead of `batch`."
    )
    adapter_rank: Annotated[int, Whole(1, 2**16), Asked("Rank", option="rank", parameter="rank")] = Field(
        default=16, description="Rank of the adapters of LoRA and QLoRA."
    )
    adapter_targets: Annotated[
        Annotated[str, Text(500, shortest=1)], Asked("Adapters on", option="targets", parameter="targets")
    ] = Field(
        default="all_linear",
        description="Linear layers with an adapter: all_linear, attention, mlp, or names joined by +, such as "
        "attention_qkv.",
    )
    loss_chunk: Annotated[int, Whole(0, 2**30), Asked("Loss chunk", "tokens")] = Field(
        default=0, description="Tokens whose logits are in memory at once; 0 for all of a microbatch."
    )
    headroom: Annotated[float, Number(0, 10), Asked("Memory kept free", metavar="SHARE")] = Field(
        default=0.0, description="Share of predicted memory that is kept free, such as 0.1."
    )
    datatype: Annotated[str, Asked("Training datatype")] = Field(
        default="bfloat16", description="Datatype of the matrix arithmetic."
    )
    limits: Annotated[
        dict[str, Any],
        Accepts("an object with limits by field name"),
        Asked(
            "Limits",
            option="limit",
            kind=FieldKind.LIMITS,
            metavar="FIELD=VALUES",
            option_help="Values of a field of the execution, such as tensor_par=1,2. May be repeated.",
        ),
    ] = Field(
        default_factory=dict,
        description="What fields of the execution may be; see `explore`. By default nothing is moved to the host.",
        json_schema_extra=LIMITS_SCHEMA,
    )
    price_usd_per_h: Annotated[
        Annotated[float, Number(0, 1e6)] | None, Asked("Price", "USD/h", option="price", parameter="price")
    ] = Field(default=None, description="Price of a GPU and hour; the range of the recorded prices by default.")
    sizes: Annotated[bool, Asked("Other sizes")] = Field(
        default=False, description="Plan on an eighth to eight times the GPUs too: time and cost over GPUs."
    )
