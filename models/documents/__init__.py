"""JSON documents that people write: strict reading, edited copies, and messages on faults.

Nothing in here depends on models or systems. This is the one module of `models` that `hardware` imports, for both kinds
of documents are read and edited in the same way.
"""

from models.documents.bounds import check_numbers, check_toml_keys, check_values
from models.documents.editing import changed_document, changes_between, lineage, marked, within
from models.documents.reading import (
    MAX_FILE_BYTES,
    OR_A_FILE,
    Accepts,
    Change,
    DocumentError,
    Library,
    Number,
    Text,
    Whole,
    check_format,
    did_you_mean,
    load_versioned,
    name_from_stem,
    near_matches,
    parse_json,
    read_json,
    sentence,
    shown,
)
from models.documents.writing import plain

__all__ = [
    "MAX_FILE_BYTES",
    "OR_A_FILE",
    "Accepts",
    "Change",
    "DocumentError",
    "Library",
    "Number",
    "Text",
    "Whole",
    "changed_document",
    "changes_between",
    "check_format",
    "check_numbers",
    "check_toml_keys",
    "check_values",
    "did_you_mean",
    "lineage",
    "load_versioned",
    "marked",
    "name_from_stem",
    "near_matches",
    "parse_json",
    "plain",
    "read_json",
    "sentence",
    "shown",
    "within",
]
