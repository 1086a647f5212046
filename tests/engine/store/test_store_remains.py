"""A store has three parts: database, list of contents, rows. Whatever became of one, nothing is lost without a word."""

import contextlib
import shutil
from itertools import product

import pytest

import engine
from engine import working_in
from engine.cli.main import main
from engine.store import Store, StoreCorruptError, StoreError
from engine.store.contents import Contents
from tests.engine.conftest import SMALL_SHARDS
from tests.engine.store.test_store_damage import make_old
from tests.engine.store_rows import FEW, decoded, make_rows, put

PARTS = ("results.duckdb", "results.contents", "results.rows")
STATES = ("own", "older", "other", "missing")
"""What a part may be: of this store, from an earlier copy of it, of another store, or gone."""
KEYS = {"own": {"one", "two"}, "older": {"one"}, "other": {"two", "three"}, "missing": set()}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Folders with each part in each state; `old` is the database as the layout without identities had it."""
    folder = tmp_path_factory.mktemp("sources")
    for state in ("own", "other"):
        (folder / state).mkdir()
        for key in sorted(KEYS[state]):
            with Store(folder / state / PARTS[0]) as store:
                put(store, key, make_rows(FEW, seed=len(state)))
            if key == "one":
                shutil.copytree(folder / state, folder / "older")
    (folder / "missing").mkdir()
    return folder


def laid_out(sources, folder, states):
    """A folder with the three parts, each in its state; returns the path of the store."""
    folder.mkdir()
    for part, state in zip(PARTS, states, strict=True):
        source = sources / state / part
        if source.is_dir():
            shutil.copytree(source, folder / part)
        elif source.exists():
            shutil.copy(source, folder / part)
    return folder / PARTS[0]


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def losses_and_records(store):
    return {key for key in ("one", "two", "three") if any(f"exploration {key}," in said for said in store.losses)}, {
        record.key for record in store.records()
    }


@pytest.mark.parametrize("states", [*product(STATES, repeat=3)], ids="-".join)
def test_every_combination_of_parts_is_right_told_or_refused(sources, tmp_path, states):
    database, contents, rows = states
    path = laid_out(sources, tmp_path / "store", states)
    before = files_in(path.parent)
    mixed = "missing" not in (database, contents) and (database == "other") != (contents == "other")
    refused = mixed or (database == "missing" and {contents, rows} != {"missing"})
    for read_only in (True, False):
        if not refused and not (read_only and database == "missing"):
            break
        with pytest.raises(StoreError) as error:
            Store(path, read_only=read_only)
        sentence = str(error.value)
        assert len(sentence) < 900
        assert sentence.isprintable()
        assert not refused or "`shardscape store check`" in sentence
        assert all(key in sentence for key in (KEYS[contents] if refused else ()))
        assert files_in(path.parent) == before
    for rebuild in (False, True) if not refused else (True,):
        with Store(path, rebuild=rebuild) as store:
            lost, stored = losses_and_records(store)
            assert stored - {"new"} == KEYS[database]
            assert lost == KEYS[contents] - KEYS[database]
            for record in store.records():
                if record.damage is None:  # then these are the rows that were written
                    seed = 7 if record.key == "new" else len("other" if database == "other" else "own")
                    whole = decoded(make_rows(FEW, seed=seed))
                    with contextlib.nullcontext() if rows == database else contextlib.suppress(StoreCorruptError):
                        assert decoded(store.rows(record.key).table()).equals(whole)
            if store.find("new") is None:
                put(store, "new", make_rows(FEW, seed=7))
        after = files_in(path.parent)
        assert all(after.get(name) == content for name, content in before.items() if name.endswith(".parquet"))
        assert set(Contents(path.with_name(PARTS[1])).entries) == KEYS[contents] | KEYS[database] | {"new"}
    with Store(path, read_only=True) as store:
        assert losses_and_records(store) == (KEYS[contents] - KEYS[database], KEYS[database] | {"new"})


@pytest.mark.parametrize("contents", STATES)
def test_a_database_without_identity_keeps_the_list_or_is_refused(sources, tmp_path, contents):
    path = laid_out(sources, tmp_path / "store", ("own", "own", "own"))
    with Store(path) as store:
        put(store, "key", make_rows(3000))
        shutil.copy(path.with_name(PARTS[1]), tmp_path / "with key")
        make_old_database(store)
    shutil.copy(tmp_path / "with key", path.with_name(PARTS[1]))
    if contents != "own":
        path.with_name(PARTS[1]).unlink()
    if contents in ("older", "other"):
        shutil.copy(sources / contents / PARTS[1], path.with_name(PARTS[1]))
    before = files_in(path.parent)
    if contents == "other":
        for read_only in (True, False):
            with pytest.raises(StoreCorruptError, match=r"is of another store than results\.contents, which lists 2 "):
                Store(path, read_only=read_only)
        assert files_in(path.parent) == before
        return
    for read_only in (True, False):
        with Store(path, read_only=read_only) as store:
            assert store.losses == []
            assert {record.key for record in store.records() if record.damage is None} == {"one", "two", "key"}
    assert set(Contents(path.with_name(PARTS[1])).entries) == {"one", "two", "key"}


def make_old_database(store):
    with working_in(SMALL_SHARDS):
        make_old(store)


def explore(path, batch):
    words = ["--procs", "4", "--max-batch", str(batch), "--datatype", "float16", "--store", str(path)]
    with pytest.raises(SystemExit) as ended:
        main(["explore", "megatron-126M", "a100_80g", *words])
    return ended.value.code


def checked(path, *options):
    with pytest.raises(SystemExit) as ended:
        main(["store", "check", str(path), *options])
    return ended.value.code


@pytest.mark.parametrize("option", ["--repair", "--drop"])
@pytest.mark.parametrize("database", ["missing", "of another store"])
def test_the_command_says_what_is_lost_and_explores_again_or_starts_over(tmp_path, capsys, database, option):
    path, other = tmp_path / "s.duckdb", tmp_path / "other" / "s.duckdb"
    other.parent.mkdir()
    assert [explore(path, batch) for batch in (2, 4)] == [0, 0]
    with Store(path) as store:
        keys = {record.key for record in store.records()}
    path.unlink()
    if database != "missing":
        assert explore(other, 16) == 0
        shutil.copy(other, path)
    before = files_in(tmp_path)
    capsys.readouterr()
    for command in (lambda: explore(path, 8), lambda: checked(path)):
        assert command() == 3
        said = capsys.readouterr().err
        assert all(f"{key[:8]} of Megatron 126M on 4 x " in said for key in keys)
        assert len(said.strip().splitlines()) == 1
    assert files_in(tmp_path) == before
    with pytest.raises(StoreCorruptError, match=r"lists 2 explorations \("):
        engine.explore("megatron-126M", "a100_80g", num_procs=4, max_batch_size=8, datatype="float16", store=path)
    assert checked(path, option) == 0
    assert explore(path, 8) == 0
    with Store(path) as store:
        assert store.losses == []
        stored = {record.key for record in store.records() if record.damage is None}
    assert keys & stored == (keys if option == "--repair" else set())
    after = files_in(tmp_path)
    assert all(after.get(name) == content for name, content in before.items() if name.endswith(".parquet"))
    assert checked(path) == 0
