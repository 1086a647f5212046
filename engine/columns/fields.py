"""The fields of one execution as data, in the order in which results are returned.

`fields.csv` has a row per field; `engine.columns` turns the rows into `Column` objects. The names of the 23 are
Calculon's; the extensions are what the calibrated cost model knows beyond them.
"""

from typing import Final, Literal, NamedTuple, cast

from engine.columns.rules import FieldCondition, among, more_than
from engine.columns.tables import read_table
from models import datatypes


class FieldRow(NamedTuple):
    """Declaration of a field; see `engine.columns.Column` for the items."""

    name: str
    label: str
    short: str
    dtype: Literal["int64", "bool", "str"]
    group: str
    choices: tuple[str, ...]
    description: str
    default: int | bool | str | None = None
    applies: tuple[FieldCondition, ...] = ()
    after: str = ""
    numbers: tuple[int, ...] = ()


SCENARIO: Final = "Scenario"
"""Group of the fields that are chosen for a whole scenario rather than tried."""
NETWORKS: Final = "Networks"

GROUPS: Final = (
    SCENARIO,
    "Parallelism",
    "Recompute",
    "Batch",
    "Communication",
    "Block",
    "Software",
    "Offload to host memory",
    NETWORKS,
)
"""The groups of fields, in the order in which editors and choosers show them."""


def _parse_default(dtype: str, text: str) -> int | bool | str | None:
    if not text:
        return None
    return text == "yes" if dtype == "bool" else int(text) if dtype == "int64" else text


def _parse_condition(text: str) -> FieldCondition:
    """Return the condition of a text such as "data_par or context_par > 1" or "activation_recompute is full"."""
    if " is " in text:
        name, _, words = text.partition(" is ")
        return among(name, *words.split(" or "))
    names, _, least = text.partition(" > ")
    return more_than(int(least), *names.split(" or "))


def _read_fields(*, extensions: bool) -> tuple[FieldRow, ...]:
    return tuple(
        FieldRow(
            name=row["name"],
            label=row["label"],
            short=row["short"],
            dtype=cast(Literal["int64", "bool", "str"], row["dtype"]),
            group=row["group"],
            choices=tuple(filter(None, row["choices"].split("|"))),
            description=row["description"],
            default=_parse_default(row["dtype"], row["default"]),
            applies=tuple(map(_parse_condition, filter(None, row["applies"].split(" and ")))),
            after=row["after"],
            numbers=tuple(map(int, filter(None, row["numbers"].split("|")))),
        )
        for row in read_table("engine.columns", "fields.csv")
        if (row["extension"] == "yes") == extensions
    )


FIELD_ROWS: Final = _read_fields(extensions=False)
EXTENSION_ROWS: Final = _read_fields(extensions=True)
"""Fields of the calibrated cost model beyond the 23."""

CHOICE_LABELS: Final[dict[str, dict[str, str]]] = {
    "datatype": {each.name: each.label for each in datatypes.REGISTER},
    "attention_type": {"multihead": "multi-head", "multiquery": "multi-query"},
    "activation_recompute": {"full": "full", "attn_only": "selective", "none": "none"},
    "tensor_par_comm_type": {"ar": "AR", "p2p_rs_ag": "p2p RS+AG", "rs_ag": "RS+AG"},
    "tensor_par_overlap": {"none": "none", "ring": "ring", "pipe": "pipe"},
    "selective_recompute": {
        "attention": "attention",
        "modules": "norms, activations",
        "half": "every second block",
        "operators": "every second product",
        "save_projections": "all but projections",
        "save_dots": "all but products",
    },
    "schedule": {
        "1f1b": "1F1B",
        "interleaved": "interleaved",
        "zb_h1": "ZB-H1",
        "zb_v": "ZB-V",
        "dualpipe": "DualPipe",
        "dualpipev": "DualPipeV",
        "combined_1f1b": "combined 1F1B",
    },
    "stage_layout": {
        "even": "even",
        "embedding_counted": "embedding counted",
        "loss_counted": "loss counted",
        "both_counted": "both counted",
        "balanced": "balanced",
    },
    "attention_kernel": {
        "unfused": "unfused",
        "flash1": "FlashAttention 1",
        "flash2": "FlashAttention 2",
        "native": "native",
    },
    "launch": {
        "eager": "eager",
        "fused": "fused kernels",
        "compiled": "compiled",
        "graphs": "CUDA graphs",
        "partial_graphs": "partial CUDA graphs",
    },
    "token_dispatcher": {
        "all_to_all": "all-to-all",
        "all_gather": "all-gather",
        "deepep": "DeepEP",
        "hybridep": "HybridEP",
    },
    "context_par_comm": {
        "p2p": "ring",
        "all_gather": "all-gather",
        "a2a": "all-to-all",
        "hierarchical": "all-to-all and ring",
    },
    **{
        row.name: {word: datatypes.named(word).label for word in row.choices}
        for row in EXTENSION_ROWS
        if row.name.endswith("_datatype")
    },
}
"""Text shown on screen for a stored choice: field name -> stored value -> text."""
