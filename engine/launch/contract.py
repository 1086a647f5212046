"""Contract of a framework: its methods, their inputs and their results.

A framework is one object in `engine.launch.registry`: it writes an `LaunchOrder` and reads flags. Names of
flags by field are data (`Framework.terms`), so that pages, guide and remarks agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.executions.frameworks.contract import FrameworkRules
from engine.executions.layer_splits import StageCut
from models import Model

__all__ = [
    "FileContents",
    "Framework",
    "LaunchError",
    "LaunchFile",
    "LaunchInputs",
    "LaunchOrder",
    "LaunchReading",
    "OnlyModelError",
    "OpenFieldsError",
    "Origin",
    "UnknownValue",
    "Written",
]


class LaunchError(ValueError):
    """Configuration that cannot be written or read; the message is one sentence with a valid form."""


class OpenFieldsError(LaunchError):
    """A configuration leaves fields open that a prediction needs.

    `fields` has the fields that the user has to state, by name, with the reason, without fields that follow from them.
    """

    def __init__(self, message: str, fields: Mapping[str, Origin]) -> None:
        super().__init__(message)
        self.fields = dict(fields)


class RefusedExecutionError(LaunchError):
    """The framework would not start the execution; another one of the same model may do."""


class OnlyModelError(LaunchError):
    """A file describes a model, as a `config.json` of Hugging Face does, and nothing of how it is trained."""


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """Value that a configuration takes from outside, in place of the value: `$TP`, `${oc.env:TP}`, `get_size()`."""

    expression: str
    line: int = 0
    file: str = ""

    def __str__(self) -> str:
        place = f" in line {self.line}" if self.line else ""
        return f"{self.expression[:80]}{place}" + (f" of {self.file[:80]}" if self.file and place else "")


@dataclass(frozen=True, slots=True)
class Origin:
    """Source of a value: stated in a file (with its line), the framework's documented default, or unknown."""

    kind: Literal["stated", "default", "unknown"]
    words: str = ""
    """Flags that state it, the framework whose default it is, or the expression that is not known."""
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file of a launch configuration: its name, its text, and the language it is highlighted in."""

    name: str
    text: str
    language: str = "bash"


@dataclass(frozen=True)
class LaunchOrder:
    """Execution and model to write as a configuration.

    `execution` has every field of the register: absent ones have their default, except `attention_kernel`,
    which is then None: the framework chooses. `zero_stage` agrees with `optimizer_sharding`. `shape` is the model as
    `engine.launch.shapes.shape_of` has it, `cut` its layers by stage of the model.
    """

    execution: Mapping[str, Any]
    model: Model
    shape: Mapping[str, Any]
    nodes: int
    gpus_per_node: int
    cut: StageCut
    note: str = ""

    @property
    def replica_microbatches(self) -> int:
        """Returns how many microbatches a replica works on in a step."""
        e = self.execution
        return int(e["batch_size"]) // (int(e["data_par"]) * int(e["microbatch_size"]))


@dataclass(frozen=True)
class Written:
    """A complete configuration. `files` has the one to start first; `flags` are its keys and values, as `read_flags`
    takes them."""

    framework: str
    title: str
    version: str
    files: tuple[LaunchFile, ...]
    flags: Mapping[str, Any]
    not_expressible: tuple[str, ...] = ()
    """Parts of the execution that the framework cannot express, a sentence each."""
    not_modelled: tuple[str, ...] = ()
    """Settings of the configuration that no field here represents, a sentence each."""
    remarks: tuple[str, ...] = ()
    """Changes to the nearest value that the framework has, and duties of the user, a sentence each."""

    @property
    def text(self) -> str:
        """Returns all files as one text, with their names where there are several."""
        if len(self.files) == 1:
            return self.files[0].text
        return "\n".join(f"# ===== {each.name} =====\n{each.text}" for each in self.files)

    @property
    def texts(self) -> dict[str, str]:
        """Returns the text of every file by its name."""
        return {each.name: each.text for each in self.files}

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class LaunchReading:
    """Execution and model of a configuration. Fields that it does not set are absent; nothing is invented.

    `execution` and `model` are by field name; the fields of the model are listed in `engine.launch.shapes`.
    """

    framework: str
    version: str
    execution: dict[str, Any]
    model: dict[str, Any]
    num_procs: int | None = None
    not_modelled: tuple[str, ...] = ()
    """Settings of the configuration that no field here represents."""
    unread: tuple[str, ...] = ()
    """Flags and words that are not known or not understood."""
    remarks: tuple[str, ...] = ()
    """Values read as the nearest one here, or corrected as the framework corrects them."""
    left: tuple[str, ...] = ()
    """Open items: fields, words of the model's shape, or values that other sources have to give."""
    refused: str = ""
    """Reason why the framework itself would not start; empty without one."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Values that were read, by the framework's names."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Source of every value of `execution` and `model` and of `num_procs`, by name, and of those left open."""
    without_effect: tuple[str, ...] = ()
    """Flags that are set and change nothing that is predicted."""
    recipes: tuple[str, ...] = ()
    """Names of the recipes of which the file has several."""
    title: str = ""
    """Name of the program whose defaults count: of the framework, or of a variant of it."""

    @property
    def open_fields(self) -> dict[str, Origin]:
        """Return the fields and words of the model's shape whose value is unknown, with the reason."""
        return {name: each for name, each in self.origins.items() if each.kind == "unknown" and each.words}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Returns the remarks."""
        return self.remarks


@dataclass(frozen=True)
class FileContents:
    """Contents of a framework's file before interpretation: its flags, and the settings of its launcher."""

    flags: Mapping[str, Any]
    gpus: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Origin of each flag, and under "gpus" that of the number of GPUs."""
    is_certain: bool = True
    """True if the file can belong to no other framework; without a certain one the first guess counts."""
    recipes: tuple[str, ...] = ()
    """Names of the recipes of which the file has several."""


@dataclass(frozen=True)
class LaunchInputs:
    """Values that the caller states in addition to a configuration."""

    gpus: int | None = None
    gpus_origin: Origin | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)
    """Origin of each flag."""
    stated: Mapping[str, Any] = field(default_factory=dict)
    """Values of fields that the caller states for what a configuration leaves open; they count more than it."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Shape of the model that the caller names, by the words of `engine.launch.shapes`; empty where none."""
    takes_defaults: bool = False
    """True to assume that missing files and variables hold no flags that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A training framework."""

    name: str
    """Word for it in commands and links."""
    title: str
    """Name on screen."""
    aliases: tuple[str, ...]
    """Other words for it that are understood."""
    version: str
    """Version of the framework that the written configuration is for."""
    source: str
    """Source of the facts about it."""
    rules: FrameworkRules
    """Executions that it does not run."""
    terms: Mapping[str, str]
    """Flags that say each field of an execution, as one shows them; fields without a word are absent."""
    write: Callable[[LaunchOrder], Written]
    """Returns the configuration. Raises `LaunchError` where the framework would refuse the execution, with its
    reason."""
    find: Callable[[str, str, str | None], FileContents | None]
    """Returns the contents of a file from its text, at most `engine.launch.conversion.MOST_BYTES` long, its name
    without folders, and the name of one recipe (None: the one for pretraining); None where it is not one of this
    framework's. Raises `LaunchError` for a file of this framework that cannot be read."""
    read_flags: Callable[[Mapping[str, Any], LaunchInputs], LaunchReading]
    """Returns what flags say: values by the framework's names, True for a flag without a value, an `UnknownValue` for
    one that the configuration takes from outside. A key that is no flag with an `UnknownValue` stands for words that
    are not at hand and may hold any flag. Raises `LaunchError` where a value that decides is no such value at all."""
