"""Verbs about the library: models, systems, and the register of fields and statistics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

import hardware
import models
from engine.columns import ALL, ALL_FIELDS, Column, cost_models_with, defined_of, statistics_of
from engine.cost_models.registry import COST_MODELS, named
from engine.questions.bounds import Context
from engine.questions.library_rows import model_row, system_row
from engine.questions.plain import plain
from engine.questions.verb import Document, QuestionError, Verb
from hardware import System
from models import Model
from models.documents import Text, did_you_mean, shown

__all__ = ["LIST_COLUMNS", "LIST_MODELS", "LIST_SYSTEMS"]


class Listing(Document):
    """Search text for the library."""

    search: Annotated[str, Text(100)] = Field(
        default="", description="Only those whose name or title has this text; letter case does not matter."
    )


class ModelRow(Document):
    """A model of the library."""

    name: str
    title: str
    parameters: int | None = Field(description="Of the whole model; null where its parts are not recorded.")
    sequence: int = Field(description="Length of a sample [tokens].")
    blocks: int | None
    hidden: int | None
    explorable: bool = Field(description="Whether the cost model calculon can represent it; calibrated takes all.")


class Models(Document):
    """Models of the library."""

    models: list[ModelRow]


class SystemRow(Document):
    """A system of the library."""

    name: str
    title: str
    datatypes: list[str]
    mem1_gib: float = Field(description="Memory of a GPU [GiB].")
    mem1_gb_per_s: float = Field(description="Its bandwidth [GB/s].")
    mem2_gib: float = Field(description="Host memory per GPU that may be offloaded to [GiB].")
    network_sizes: list[int] = Field(description="GPUs that each network tier links, the fastest first.")
    assumed_values: int = Field(description="Values that no datasheet states.")


class Systems(Document):
    """Systems of the library."""

    systems: list[SystemRow]


class Columns(Document):
    """Columns to describe."""

    names: list[str] | None = Field(default=None, description="Columns by name; null for all of the kind.")
    kind: Literal["field", "outcome", "statistic"] | None = Field(
        default=None, description="Fields make up an execution, statistics are what comes of it; null for all."
    )
    cost_model: str | None = Field(
        default=None, description=f"Only those that this cost model has: {' or '.join(COST_MODELS)}."
    )


class ColumnRow(Document):
    """A field or a statistic of an execution, as the register has it."""

    name: str
    label: str
    kind: str
    group: str
    unit: str = Field(description="Unit of the values; empty where they have none.")
    type: str = Field(description="int64, float64, bool or str.")
    description: str
    choices: list[str | int] = Field(description="Accepted values; empty where any may appear.")
    default: bool | int | str | None = Field(description="Value of a field that an execution may leave out.")
    better: str | None = Field(description="higher, lower, or null where neither is better by itself.")
    cost_models: list[str]


class ColumnRows(Document):
    """Columns of executions."""

    columns: list[ColumnRow]


def _has_words(thing: Model | System, words: str) -> bool:
    return words.casefold() in f"{thing.name} {thing.title}".casefold()


def _answer_models(asked: Listing, context: Context) -> dict[str, Any]:
    found = [model for name in models.names() if _has_words(model := models.load(name), asked.search)]
    return {"models": [model_row(each) for each in found]}


def _answer_systems(asked: Listing, context: Context) -> dict[str, Any]:
    found = [system for name in hardware.names() if _has_words(system := hardware.load(name), asked.search)]
    return {"systems": [system_row(each) for each in found]}


def _answer_columns(asked: Columns, context: Context) -> dict[str, Any]:
    wanted = asked.names
    known = {column.name: column for column in ALL}
    for name in wanted or ():
        if name not in known:
            raise QuestionError(f"There is no column {shown(name)}{did_you_mean(name, list(known))}.")
    chosen = [
        column
        for column in known.values()
        if (wanted is None or column.name in wanted)
        and asked.kind in (None, column.kind)
        and (asked.cost_model is None or _has_cost_model(column, asked.cost_model))
    ]
    return {"columns": [_column_row(column) for column in chosen]}


def _has_cost_model(column: Column, cost_model: str) -> bool:
    return named(cost_model).name in _cost_models(column)


def _cost_models(column: Column) -> list[str]:
    if column in ALL_FIELDS:
        return cost_models_with(column.name)
    every = {column.name for column in ALL} - {each.name for one in COST_MODELS for each in statistics_of(one)}
    return [one for one in COST_MODELS if column.name in {*every, *(each.name for each in defined_of(one))}]


def _column_row(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "label": column.label,
        "kind": column.kind,
        "group": column.group,
        "unit": column.unit,
        "type": column.dtype,
        "description": column.description,
        "choices": list(column.choices) or list(column.numbers),
        "default": plain(column.default),
        "better": column.better,
        "cost_models": _cost_models(column),
    }


LIST_MODELS = Verb(
    "list_models", "List models", "Lists the models of the library with their sizes.", Listing, Models, _answer_models
)
LIST_SYSTEMS = Verb(
    "list_systems",
    "List systems",
    "Lists the systems (GPUs with memory and networks) of the library.",
    Listing,
    Systems,
    _answer_systems,
)
LIST_COLUMNS = Verb(
    "list_columns",
    "List columns",
    "Explains the fields and statistics of executions: unit, meaning, accepted values. For limits and to read rows.",
    Columns,
    ColumnRows,
    _answer_columns,
)
