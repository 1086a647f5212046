"""The sheet of a model or system: every value with its unit and its marks, as HTML that the report uses too."""

from __future__ import annotations

import json
from html import escape
from itertools import groupby
from typing import Any, Final

from dashboard.link.catalogue import called
from dashboard.queries.document_fields import Field, Mark, fields_of, marks_of, value_at
from dashboard.words.numbers import ABSENT, MINUS, UNLIMITED, capacity_words, count, counted, plain
from engine.columns import choice_label
from engine.cost_models.registry import COST_MODELS, named
from hardware import System, network_names
from models import Model

__all__ = [
    "MORE_THAN_CALCULON",
    "changes_in_words",
    "key_facts",
    "lineage",
    "not_represented",
    "representation",
    "sheet",
    "shown_value",
]

_WORDS: Final = {"assumed": "assumed", "unverified": "not verified", "changed": "edited"}
MORE_THAN_CALCULON: Final = (
    "Calculon's six numbers cannot describe it; scenarios with it use the calibrated cost model."
)
_CHOICES: Final = {"roofline": "overlap; the longer counts", "no_overlap": "add up"}


def shown_value(field: Field, value: Any) -> str:
    """Returns a value as the sheet prints it, without its unit."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if field.kind == "table":
        return ", ".join(f"{threshold:g}: {share:g}" for threshold, share in value)
    if isinstance(value, tuple):
        return " to ".join(plain(each) for each in value)
    if isinstance(value, int | float):
        number = float(f"{value / field.factor:.12g}")
        whole = number == int(number) and abs(number) < 1e15
        return (f"{int(number):,}" if whole else f"{number:.6g}").replace("-", MINUS)
    return _CHOICES.get(str(value), str(value))


def sheet(thing: Model | System) -> str:
    """Sections of rows: label, value with unit, and its marks."""
    marks = marks_of(thing)
    parts = []
    for section, found in groupby(fields_of(thing), key=lambda field: field.section):
        said: set[Mark] = set()
        rows = [
            _row_markup(field, value_at(thing, field.path), _notes_markup(marks.get(field.path, []), said))
            for field in found
        ]
        parts.append(
            f'<table class="ss-sheet"><caption>{escape(section)}</caption><thead><tr><th>Value of</th><th>Value</th>'
            f"<th>Mark</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )
    return "".join(parts)


def _notes_markup(marks: list[Mark], said: set[Mark]) -> str:
    """The marks of a row as HTML; what an earlier row of the section said is not said again."""
    notes = [
        f'<span class="ss-mark ss-mark-{mark.kind}">{_WORDS[mark.kind]}</span> '
        f"{'as above' if mark in said else escape(mark.text)}"
        for mark in marks
    ]
    said.update(marks)
    return "<br>".join(notes)


def _row_markup(field: Field, value: Any, notes: str) -> str:
    known = value is not None and field.unit and field.kind != "table"
    unit = f' <span class="ss-unit">{escape(field.unit)}</span>' if known else ""
    tooltip = f' title="{escape(field.help)}"' if field.help else ""
    label = f"{field.label} [{field.unit}]" if field.kind == "table" else field.label
    text = escape(shown_value(field, value))
    if field.unit == "GiB" and isinstance(value, int | float) and value * 2**30 >= UNLIMITED:
        text, unit = "unlimited", ""
    return f"<tr><th{tooltip}>{escape(label)}</th><td>{text}{unit}</td><td>{notes}</td></tr>"


def not_represented(thing: Model | System, cost_model: str) -> list[str]:
    """Returns sentences on the properties that a cost model leaves out or changes."""
    left_out = named(cost_model).words.neglected(thing)
    return [*left_out, *thing.notes] if isinstance(thing, Model) else [*thing.notes, *left_out]


def representation(thing: Model | System) -> list[tuple[str, str, list[str]]]:
    """Returns title, scope and sentences on what each cost model that takes it leaves out or changes; notes only
    once."""
    title = "What is not represented"
    able = [each for each in reversed(COST_MODELS.values()) if isinstance(thing, System) or not each.unsupported(thing)]
    parts = [(title, f"in the {each.name} cost model", list(each.words.neglected(thing))) for each in able]
    if isinstance(thing, System):
        return [("Notes", "on the description", list(thing.notes)), *parts] if thing.notes else parts
    return [(*parts[0][:2], [*parts[0][2], *thing.notes]), *parts[1:]]


def changes_in_words(thing: Model | System) -> list[str]:
    """Returns what an edited copy differs in: "HBM capacity 80 → 120 GiB"."""
    known = {field.path: field for field in fields_of(thing)}
    found = []
    for change in thing.changes:
        field = known.get(change.field)
        if field is None:
            found.append(f"{change.field} {change.old} → {change.new}")
            continue
        old, new = (_change_value(field, value) for value in (change.old, change.new))
        unit = f" {field.unit}" if field.unit and field.kind != "table" else ""
        found.append(f"{field.label} {old} → {new}{unit}")
    return found


def _change_value(field: Field, value: Any) -> str:
    """A value of a change as the sheet prints it; tables are recorded as JSON text."""
    if field.kind == "table" and isinstance(value, str):
        try:
            value = json.loads(value)
            return shown_value(field, [(float(size), float(share)) for size, share in value])
        except (ValueError, TypeError):
            return str(value)
    return shown_value(field, value)


def key_facts(thing: Model | System) -> list[tuple[str, str]]:
    """Returns the figures that tell most of a model or a system, with their labels."""
    if isinstance(thing, System):
        first = next(iter(thing.matrix))
        name = "float16" if "float16" in thing.matrix else first
        host = capacity_words(thing.mem2.capacity_gib) if thing.mem2.capacity_gib else "none"
        names = network_names(thing)
        return [
            (f"matrix peak, {choice_label('datatype', name)}", f"{plain(thing.matrix[name].tflops)} TFLOP/s"),
            ("HBM", f"{capacity_words(thing.mem1.capacity_gib)} at {plain(thing.mem1.bandwidth_gb_per_s)} GB/s"),
            ("host memory", host),
            *(
                (name, f"{network.size:,} GPUs at {plain(network.bandwidth_gb_per_s)} GB/s")
                for name, network in zip(names, thing.networks, strict=True)
            ),
        ]
    found = [("parameters", "not recorded" if thing.parameters is None else count(thing.parameters))]
    if thing.active_parameters is not None and thing.active_parameters != thing.parameters:
        found.append(("used by a token", count(thing.active_parameters)))
    if thing.tower is not None and thing.counts is not None:
        found.append(("tower for images", count(thing.counts.tower)))
    if thing.block is not None:
        block = thing.block
        found += [
            ("blocks", f"{block.num_blocks:,}"),
            ("hidden", f"{block.hidden:,}"),
            ("heads", f"{block.attn_heads:,} × {block.attn_size:,}"),
        ]
    if thing.layers is not None and thing.counts is not None:
        found += [
            ("layers", thing.layers.describe()),
            ("hidden", f"{thing.layers.hidden:,}"),
            ("cache per token, bf16", f"{plain(thing.counts.cache_bytes_per_token / 1024)} KiB"),
            ("state per sequence, bf16", f"{plain(thing.counts.state_bytes_per_sequence / 1024**2)} MiB"),
        ]
    return [*found, ("sequence", f"{thing.seq_size:,} tokens")]


def lineage(thing: Model | System) -> str:
    """Returns what an edited copy was made from; empty for an original."""
    if not thing.derived_from:
        return ""
    number = len(thing.changes)
    return f"Edited copy of {called(thing.derived_from, type(thing))}; {counted(number, 'value')} changed."
