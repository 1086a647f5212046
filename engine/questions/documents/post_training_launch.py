"""Questions about launch files of reinforcement learning: a plan written as one, and one read as a question."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field

from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.fields import Asked, FieldKind
from engine.questions.verb import Document, Named
from models.documents import Accepts, Text

__all__ = ["FRAMEWORKS", "RUN_FRAMEWORK_WORDS", "PostTrainingExportQuestion", "PostTrainingImportQuestion"]

LONGEST_TEXT: Final = 500_000
RUN_FRAMEWORK_WORDS: Final = {"nemo-rl": "NeMo-RL", "verl": "verl", "slime": "slime"}
"""Frameworks of `engine.launch.post_training` on screen."""
FRAMEWORKS: Final = "|".join(RUN_FRAMEWORK_WORDS)


class PostTrainingExportQuestion(PostTrainingQuestion):
    """Question for the best way to run reinforcement learning, and the framework whose launch file is written."""

    launch: Annotated[
        Literal["nemo-rl", "verl", "slime"],
        Asked("Launch file", metavar=FRAMEWORKS, option_help="Write the launch file of the fastest mode."),
    ] = Field(
        description="Framework of the launch file. Executions that it does not run are not searched, unless "
        "`training.limits` asks for them."
    )
    checkpoint: Annotated[
        str | None,
        Asked("Checkpoint", metavar="REPOSITORY|PATH", option_help="Weights of the model; the library's by default."),
    ] = Field(default=None, description="Weights to train: a repository on Hugging Face, or a path.")


class PostTrainingImportQuestion(Document):
    """A launch file of reinforcement learning that is to be read, and planned where a system is named."""

    text: Annotated[str, Text(LONGEST_TEXT, shortest=1)] = Field(
        description="Configuration of NeMo-RL, or script of verl or slime."
    )
    name: Annotated[str, Text(200, shortest=1)] = Field(
        default="run.sh", description="File name; its ending gives the format."
    )
    files: dict[str, str] = Field(
        default_factory=dict, description="Texts of files beside it by name, such as the recipe that it starts from."
    )
    framework: Annotated[
        str | None, Asked("Framework", metavar=FRAMEWORKS, option_help="Framework of the file; recognised by default.")
    ] = Field(default=None, description=f"One of {', '.join(RUN_FRAMEWORK_WORDS)}; recognised by default.")
    model: Annotated[Named | None, Asked("Model")] = Field(default=None, description="Model; overrides the file.")
    stated: Annotated[
        dict[str, Any],
        Accepts("an object with values by setting"),
        Asked("Stated values", option="set", kind=FieldKind.VALUES),
    ] = Field(
        default_factory=dict,
        description="Values of settings that the file leaves open, such as mean and prompt_tokens.",
        json_schema_extra={"additionalProperties": True},
    )
    takes_defaults: Annotated[bool, Asked("Defaults", option="defaults")] = Field(
        default=False, description="Assume that files and variables that are not at hand set nothing that is read."
    )
    system: Annotated[Named | None, Asked("System")] = Field(
        default=None, description="System on which the run is planned; not planned by default."
    )
