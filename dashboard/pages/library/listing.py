"""The searchable list of the Library page: the library's and the user's own models and systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pandas as pd
import streamlit as st

import hardware
import models
from dashboard.link import state
from dashboard.link.user_files import user_files
from dashboard.words.numbers import UNLIMITED
from hardware import GIB, System
from models import Model

__all__ = ["Item", "items", "searched", "table"]


@dataclass(frozen=True, slots=True)
class Item:
    """One model or system of the list."""

    thing: Model | System
    own: bool

    @property
    def name(self) -> str:
        """Name in files and links."""
        return self.thing.name


@lru_cache(maxsize=1)
def _library_models() -> tuple[Item, ...]:
    found = [models.load(name) for name in models.names()]
    return tuple(Item(model, False) for model in sorted(found, key=lambda model: (model.family.lower(), model.name)))


@lru_cache(maxsize=1)
def _library_systems() -> tuple[Item, ...]:
    return tuple(Item(hardware.load(name), False) for name in hardware.names(with_variants=True))


def items(kind: str, first: str = "") -> list[Item]:
    """Returns all "models" or "systems": the one called `first`, own ones, then the library's."""
    own: dict[str, Any] = user_files().models() if kind == "models" else user_files().systems()
    mine = [Item(thing, True) for _, thing in sorted(own.items(), key=lambda pair: pair[0].lower())]
    every = [*mine, *(_library_models() if kind == "models" else _library_systems())]
    return sorted(every, key=lambda item: item.name != first)


def searched(found: Sequence[Item], text: str) -> list[Item]:
    """Returns the items that contain every word of a search in name, title, family, maker's name or source."""
    words = text.lower().split()

    def content(item: Item) -> str:
        thing = item.thing
        parts = [thing.name, thing.title, thing.source, thing.derived_from, "own" if item.own else ""]
        if isinstance(thing, Model):
            parts.append(thing.family)
        elif thing.accelerator is not None:
            parts += [thing.accelerator.name, thing.accelerator.generation]
        return " ".join(parts).lower()

    return [item for item in found if all(word in content(item) for word in words)]


_HEIGHT: Final = 640


def table(shown: Sequence[Item], chosen: str, kind: str) -> None:
    """Draws the list; picking a row sets `library_item` in the link."""
    names = [item.name for item in shown]
    columns = _model_columns(shown) if kind == "models" else _system_columns(shown)
    key = f"library_table_{kind}_{hash(tuple(names)) & 0xFFFFFFFF:x}"

    def picked() -> None:
        rows = st.session_state[key]["selection"]["rows"]
        if rows:
            state.set_url_value("library_item", names[rows[0]])

    now = [names.index(chosen)] if chosen in names else []
    settings: dict[str, Any] = {
        "Name": st.column_config.TextColumn(width=170 if kind == "models" else 300),
        "Params, bn": st.column_config.NumberColumn(format="%.2f", width=86, help="Parameters, in billions."),
        "Kind": st.column_config.TextColumn(width=72, help="Dense, or a mixture of experts."),
        "GiB": st.column_config.NumberColumn(format="compact", width=56, help="HBM capacity; –: unlimited."),
        "TFLOP/s": st.column_config.NumberColumn(format="%,d", width=70, help="Dense 16-bit matrix peak."),
    }
    st.dataframe(
        pd.DataFrame(columns),
        key=key,
        hide_index=True,
        on_select=picked,
        selection_mode="single-row-required",
        selection_default={"selection": {"rows": now, "columns": [], "cells": []}},
        placeholder="–",
        height=min(_HEIGHT, 40 + 31 * max(1, len(shown))),
        row_height=31,
        column_config=settings,
        alt=f"{len(shown)} {kind} to choose from",
    )


def _item_label(item: Item) -> str:
    title = item.thing.title or item.name
    return f"{title} · own" if item.own else title


def _model_columns(shown: Sequence[Item]) -> dict[str, list[Any]]:
    kinds, sizes = [], []
    for item in shown:
        model = item.thing
        assert isinstance(model, Model)
        kinds.append("pattern" if model.layers is not None else "mixture" if _has_experts(model) else "dense")
        sizes.append(None if model.parameters is None else model.parameters / 1e9)
    return {"Name": [_item_label(item) for item in shown], "Params, bn": sizes, "Kind": kinds}


def _has_experts(model: Model) -> bool:
    return model.active_parameters != model.parameters


def _system_columns(shown: Sequence[Item]) -> dict[str, list[Any]]:
    capacities, rates = [], []
    for item in shown:
        system = item.thing
        assert isinstance(system, System)
        capacity = system.mem1.capacity_gib
        capacities.append(capacity if capacity * GIB < UNLIMITED else None)
        half = next((system.matrix[name] for name in ("bfloat16", "float16") if name in system.matrix), None)
        rates.append(None if half is None else half.tflops)
    return {"Name": [_item_label(item) for item in shown], "GiB": capacities, "TFLOP/s": rates}
