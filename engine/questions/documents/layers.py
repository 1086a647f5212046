"""Question about layers: how layers of a model or a profile are divided into pipeline stages with replicas (DAPPLE)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document, Named
from models.documents import Number, Text, Whole

__all__ = ["LayersQuestion", "SystemShare"]

MOST_PROCS: Final = 4_096
LONGEST_PROFILE: Final = 16 * 2**20
"""Characters of the longest profile that is read."""
Gpus = Annotated[int, Whole(1, MOST_PROCS)]
Batch = Annotated[int, Whole(1, 10**6)]
Rate = Annotated[float, Number(1e-6, 1e9)]


class SystemShare(Document):
    """GPUs of one kind."""

    system: Named = Field(description="System: a name that `list_systems` has, or a whole system document.")
    num_procs: Gpus = Field(description="How many of its GPUs there are.")


class LayersQuestion(Document):
    """Question for a division of layers among devices: a library model on systems, or a profile of layers on a
    cluster."""

    global_batch: Annotated[Batch, Asked("Global batch", option="batch", parameter="batch")] = Field(
        description="Samples of a step."
    )
    model: Annotated[Named | None, Asked("Model")] = Field(
        default=None, description="Model, with `systems`; or null, with `profile`."
    )
    systems: Annotated[
        list[SystemShare] | None,
        Asked(
            "Systems",
            option="system",
            repeats=True,
            metavar="NAME:N",
            option_help="System and its processors, for a library model; repeatable.",
        ),
    ] = Field(
        default=None, min_length=1, max_length=8, description="Of a model: one system, or several as one cluster."
    )
    tensor_par: Annotated[Gpus, Asked("Tensor parallel", parameter="tensor")] = Field(
        default=1, description="Of a model: GPUs that share every layer, one device of the plan."
    )
    datatype: str = Field(default="bfloat16", description="Of a model: datatype of the matrix arithmetic.")
    profile: Annotated[Annotated[str, Text(LONGEST_PROFILE, shortest=1)] | None, Asked("Profile")] = Field(
        default=None,
        description="Profile of layers: the name of an example, such as bert_48 or vgg19, or the text of a profile "
        "(TorchGraph, CSV or JSON).",
    )
    profile_name: Annotated[str, Text(200, shortest=1)] = Field(
        default="profile", description="Name of a profile that is given as text."
    )
    profile_batch: Annotated[Annotated[float, Number(1e-6, 1e9)] | None, Asked("Profile batch", parameter="taken")] = (
        Field(default=None, description="Batch at which the profile was taken; the profile's own by default.")
    )
    cluster: Annotated[str | None, Asked("Cluster", option="preset")] = Field(
        default=None, description="Of a profile: a cluster of the DAPPLE paper, A, B or C; A by default."
    )
    machines: list[Gpus] | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Of a profile, instead: where device numbers end; 8,16 are two machines of eight.",
    )
    memory_gb: Annotated[Rate | None, Asked("Memory of a device", "GB")] = Field(
        default=None, description="Of a profile: memory of a device; the cluster's by default."
    )
    transfer_gb_per_s: Annotated[Rate | None, Asked("Transfers between machines", "GB/s", parameter="transfer")] = (
        Field(default=None, description="Of a profile: sustained rate of transfers; the cluster's by default.")
    )
    all_reduce_gb_per_s: Annotated[Rate | None, Asked("All-reduce between machines", "GB/s", parameter="reduce")] = (
        Field(default=None, description="Of a profile: sustained rate of all-reduces; the cluster's by default.")
    )
    inside_gb_per_s: Annotated[Rate | None, Asked("Inside a machine", "GB/s", parameter="inside")] = Field(
        default=None, description="Of a profile: rate of a device's link; the cluster's by default."
    )
    optimizer: Annotated[float, Number(1e-6, 1e6), Asked("Parameters with optimizer")] = Field(
        default=1.0, description="Of a profile: parameters, gradients and optimizer states in multiples of parameters."
    )
    microbatch: Annotated[Batch, Asked("Microbatch")] = Field(
        default=1, description="Of a profile: samples of a microbatch of one pipeline."
    )
    mode: Annotated[
        Literal["paper", "released"] | None,
        Asked("Search", words={"paper": "Paper’s latency", "released": "Released"}),
    ] = Field(
        default=None,
        description="Of a profile: the paper's latency (paper, the default), or the quick searches of HPGO 0.9.2 "
        "(released).",
    )
