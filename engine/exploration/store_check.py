"""Full check of a store, down to the last bit: finds damaged, lost and foreign files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from engine.cost_models.registry import COST_MODELS
from engine.exploration.run import read_back
from engine.scenarios.scenario import Scenario
from engine.store import Store, catalogue
from engine.store import shards as store_shards
from engine.store.catalogue import Catalogued, Record
from engine.store.errors import ADVICE, StoreCorruptError, StoreError
from engine.store.names import describe_exploration
from engine.store.shards import Shard

__all__ = ["Finding", "add_checksums", "check_store", "drop_exploration"]

Kind = Literal["damaged", "lost", "unprotected", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: Kind
    """`damaged`: rows or reductions cannot be used. `lost`: it was stored and is not there any more. `unprotected`:
    shards that older code has written, which can be read but have no checksums. `note`: nothing that has to be done."""
    sentence: str
    key: str = ""
    """The exploration."""
    scenario: Any = None
    """Explored scenario as a document, if it is known."""


def check_store(store: Store) -> Iterator[Finding]:
    """Reads everything that a store holds and gives what was found, exploration after exploration.

    Raises StoreCorruptError when the database itself cannot be read.

    Args:
        store: the open store.
    """
    database = store._database()
    records, catalogued = store.records(), catalogue.all_catalogued(database)
    for record in records:
        yield from _check_exploration(store, record, catalogued.get(record.key))
    for key, entry in database.contents.lost(record.key for record in records).items():
        sentence = catalogue.loss(database, key, entry)
        yield Finding("lost", sentence, key, entry.get("scenario"))
    contents = database.contents
    if not contents.ours:
        yield Finding(
            "note",
            f"The file {contents.path} is not of this store, so there is no list of its contents, and losses "
            "cannot be detected: move it away.",
        )
    elif contents.damaged:
        yield Finding(
            "note",
            f"Of the list of contents {contents.path} {contents.damaged} lines are damaged: "
            "losses of their explorations cannot be detected.",
        )
    if not database.identity:  # a store of older code does not know its files
        return
    sound = [catalogued[record.key] for record in records if record.damage is None and record.key in catalogued]
    known = [shard.name for each in sound for shard in each.shards or []]
    for path in database.files.strangers(known):
        yield Finding("note", f"{path} is not of this store, as far as that knows, and is left alone.")


def give_way(store: Store, finding: Finding) -> None:
    """Remove a damaged exploration before it is explored again; until then the store reports it as lost.

    Args:
        store: the store, open for writing.
        finding: what `check_store` found.
    """
    contents = store._database().contents
    entry = contents.entries.get(finding.key)
    store.delete(finding.key)
    if entry is not None:
        contents.add(finding.key, entry["created_at"], entry["scenario"])


def drop_exploration(store: Store, finding: Finding) -> None:
    """Remove a damaged exploration with its record, or forget a lost one.

    Args:
        store: the store, open for writing.
        finding: a finding of `check_store`.
    """
    if finding.kind in ("damaged", "lost"):
        catalogue.delete(store._writable(), finding.key)  # also one with an invalid key, or with only the key lost


def add_checksums(store: Store, finding: Finding) -> None:
    """Give the shards of an exploration checksums of their present content.

    Args:
        store: the store, open for writing.
        finding: a finding of `check_store`.
    """
    database = store._writable()
    shards = catalogue.catalogued(database, finding.key).shards or []
    text = store_shards.to_json(store_shards.with_checksum(database.folder, shard) for shard in shards)
    with database.transaction() as cursor:
        cursor.execute("UPDATE exploration SET shards = $shards WHERE key = $key", {"shards": text, "key": finding.key})


def _check_exploration(store: Store, record: Record, catalogued: Catalogued | None) -> Iterator[Finding]:
    database = store._database()
    listed = database.contents.entries.get(record.key, {})
    scenario = listed.get("scenario", record.scenario)  # the list has checksums
    name = describe_exploration(record.key, scenario)
    said: list[str] = []
    unprotected = 0
    try:
        if record.damage is not None:
            said.append(record.damage)
        else:
            if catalogued is None:  # removed meanwhile
                raise catalogue.no_exploration(database, record.key)
            for shard in catalogued.shards or []:
                damage = _find_damage(store, shard)
                said += [damage] if damage is not None else []
                unprotected += shard.checksum is None
            if not said and (rows := store.rows(record.key).table().num_rows) != record.feasible:
                said.append(f"{rows:,} rows of {record.feasible:,} are left")
            _check_as_read(store, record, store.reductions(record.key))
    except (StoreError, pa.ArrowException, OSError) as error:
        said.append(str(error).split("\n", 1)[0].rstrip("."))
    if said:
        more = f" ({len(said) - 1} more)" if len(said) > 1 else ""
        reason = said[0].rstrip(".").removesuffix(f": {ADVICE}".rstrip("."))
        yield Finding("damaged", f"{name} is damaged: {reason}{more}.", record.key, scenario)
    elif unprotected:
        yield Finding(
            "unprotected",
            f"{name} can be read, but has {unprotected} shards from before there were checksums: --repair adds them.",
            record.key,
            record.scenario,
        )


def _check_as_read(store: Store, record: Record, tables: dict[str, pa.Table]) -> None:
    """Read what this version has explored as `explore` would. Raises StoreCorruptError where that is not it."""
    if record.engine_version.partition(",")[0] not in {each.version for each in COST_MODELS.values()}:
        return
    try:
        scenario = Scenario.from_document(record.scenario)
    except ValueError as problem:
        raise StoreCorruptError(f"its scenario cannot be read ({str(problem).rstrip('.')})") from None
    if scenario.key != record.key and scenario.physics == record.engine_version:
        raise StoreCorruptError("its scenario is not the one that was explored")
    if scenario.key == record.key:
        read_back(scenario, store, record, tables)


def _find_damage(store: Store, shard: Shard) -> str | None:
    database = store._database()
    path = database.folder / shard.name
    found = store_shards.damage_inside(path, shard, database.verified)
    if found is None and shard.checksum is None:
        found = store_shards.find_undecodable(path, shard)
    return found
