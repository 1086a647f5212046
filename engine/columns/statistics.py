"""The 96 statistics of one execution as data: one row each, in the order in which results are returned.

The names are Calculon's, so that its result files can be read beside ours; the meaning of each was read off the
formulas in the modules that compute it. `statistics.csv` has a row per statistic; `engine.columns` turns these rows
into `Column` objects. Rows marked as extensions are results of the calibrated cost model beyond the 96, 0 in the other.

Words used below. A *block* is one transformer layer; a *stage* is the group of blocks that one GPU holds; with
interleaving a stage is cut into *chunks*. Within a chunk every block but the last is a *base block*; the last is the
*edge block*, whose output leaves for the next stage. *Exposed* is the part of a transfer that no arithmetic hides.
"""

from typing import Final, Literal, NamedTuple, cast

from engine.columns.tables import read_table


class StatisticRow(NamedTuple):
    """A statistic as it is declared; see `engine.columns.Column` for each item.

    `headline`: stored for every feasible execution. `extension`: beyond the 96. `of_layers`: describes layers as
    Calculon does, and is not a number in the other cost model.
    """

    name: str
    label: str
    short: str
    unit: str
    group: str
    better: Literal["higher", "lower"] | None
    description: str
    headline: bool
    extension: bool
    of_layers: bool


def read_statistics(package: str, file: str) -> tuple[StatisticRow, ...]:
    """Return the rows of a table of statistics, in order.

    Args:
        package: package that the table is in.
        file: name of a CSV file with the items of `StatisticRow` as columns, truths as "yes"; absent ones are false.
    """
    return tuple(
        StatisticRow(
            name=row["name"],
            label=row["label"],
            short=row["short"],
            unit=row["unit"],
            group=row["group"],
            better=cast(Literal["higher", "lower"] | None, row["better"] or None),
            description=row["description"],
            headline=row.get("headline") == "yes",
            extension=row.get("extension") == "yes",
            of_layers=row.get("of_layers") == "yes",
        )
        for row in read_table(package, file)
    )


_ROWS: Final = read_statistics("engine.columns", "statistics.csv")
STATISTIC_ROWS: Final = tuple(row for row in _ROWS if not row.extension)
EXTENSION_STATISTIC_ROWS: Final = tuple(row for row in _ROWS if row.extension)

_EXPOSED: Final = (
    "tp_comm_exposed_time",
    "recomm_exposed_time",
    "pp_comm_exposed_time",
    "dp_comm_exposed_time",
    "cp_comm_exposed_time",
    "ep_comm_exposed_time",
)

SHARE_ROWS: Final[tuple[tuple[str, str, str, tuple[str, ...], str], ...]] = (
    (
        "bubble_share",
        "Bubble share",
        "bubble share",
        ("bubble_time",),
        "Share of a step in which a stage waits for the pipeline to fill or to drain: pipeline bubble ÷ step time.",
    ),
    (
        "comm_exposed_share",
        "Exposed communication share",
        "comm. share",
        _EXPOSED,
        "Share of a step lost to communication that no arithmetic hides, of tensor, pipeline, data, context and expert "
        "parallelism together: their exposed times ÷ step time.",
    ),
)
"""(name, label, short, the stored times whose sum is divided by the step time, description)."""

HEADLINE_NAMES: Final = frozenset(row.name for row in STATISTIC_ROWS if row.headline)
"""The statistics of the 96 that are kept for every feasible execution; others are recomputed for the rows in view."""

OF_LAYERS: Final = frozenset(row.name for row in _ROWS if row.of_layers)
"""Statistics that describe layers as Calculon does: not a number in the other cost model."""
