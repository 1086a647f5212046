"""Damaged and lost results are told: never other rows than were stored, never silence.

Bits are flipped, files cut short and logs truncated, many times, in copies of a store as a killed process left it.
"""

import errno
import json
import os
import random
import re
import shutil
import signal
import warnings
import zlib
from collections import Counter
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb
import pytest

import engine
from engine.cli.main import main
from engine.exploration.run import from_store
from engine.exploration.store_check import check_store
from engine.store import Store, StoreCorruptError, StoreError, StoreLossWarning, StoreVersionError, shards
from tests.engine.conftest import SMALL_SHARDS
from tests.engine.forked import ended
from tests.engine.store_rows import MANY, REDUCTIONS, decoded, folder_of, make_rows, put, rows_in_tables

KEYS = {"inside0": 700, "sharded0": 2300, "inside1": 900, "sharded1": 2500}
"""Rows of explorations in a table, as earlier versions kept few, and in shards."""


def write_and_die(_: Connection, path: Path) -> None:
    """Store what `KEYS` says and something that is deleted again, and be killed."""
    engine.set_work_sizes(SMALL_SHARDS)  # for good: it is a process of its own
    store = Store(path)
    for key, rows in KEYS.items():
        with rows_in_tables() if key.startswith("inside") else nullcontext():
            put(store, key, make_rows(rows, seed=rows))
    put(store, "gone", make_rows(100))
    store.delete("gone")
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a store whose process was killed after it had stored everything and deleted one."""
    path = tmp_path_factory.mktemp("killed") / "results.duckdb"
    assert ended(write_and_die, path) == -signal.SIGKILL
    assert path.with_name("results.duckdb.wal").stat().st_size > 100_000
    return path.parent


@pytest.fixture(scope="module")
def written():
    return {key: decoded(make_rows(rows, seed=rows)) for key, rows in KEYS.items()}


def flip(path, chance):
    """Change one bit."""
    with path.open("r+b") as file:
        position = chance.randrange(path.stat().st_size)
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))


def cut(path, chance):
    """Remove the end."""
    os.truncate(path, chance.randrange(path.stat().st_size))


def look(path, written):
    """Read all that a store should have; return what became of each exploration: right, damaged or told to be lost.

    Right rows or a sentence: everything else fails.
    """
    outcome = {}
    try:
        store = Store(path)
        lost = store.losses
    except StoreError as error:
        return dict.fromkeys(written, f"refused in {len(str(error).splitlines())} line")
    with store:
        for key, rows in written.items():
            if any(key in sentence for sentence in lost):
                outcome[key] = "told to be lost"
                assert store.find(key) is None
                continue
            try:
                found = decoded(store.rows(key).table())
                reductions = store.reductions(key)
            except StoreCorruptError:
                outcome[key] = "damaged"
                continue
            assert found.equals(rows), f"{key} has other rows than were stored"
            assert all(reductions[name].equals(table) for name, table in REDUCTIONS.items())
            outcome[key] = "right"
        assert not any("gone" in sentence for sentence in lost)
    return outcome


@pytest.mark.parametrize(
    ("file", "harm", "times"),
    [
        ("results.rows/sharded0/00001.parquet", flip, 4),
        ("results.rows/sharded1/00002.parquet", cut, 2),
        ("results.duckdb.wal", cut, 4),
        ("results.duckdb.wal", flip, 4),
        ("results.duckdb.wal", None, 1),
        ("results.contents", flip, 2),
        ("results.contents", cut, 2),
        ("results.duckdb", flip, 4),
    ],
)
def test_no_damage_gives_other_rows_or_silence(killed, written, tmp_path, file, harm, times):
    chance = random.Random(f"{file} {times}")
    outcomes = Counter()
    for number in range(times):
        copy = tmp_path / str(number)
        shutil.copytree(killed, copy)
        if file == "results.duckdb":  # everything in the file itself, nothing in its log
            Store(copy / file).close()
        harm(copy / file, chance) if harm else (copy / file).unlink()
        outcome = look(copy / "results.duckdb", written)
        outcomes.update(outcome.values())
        assert set(outcomes) <= {"right", "damaged", "told to be lost", "refused in 1 line"}
        shutil.rmtree(copy)
    if file.endswith(".parquet"):
        assert outcomes == {"right": 3 * times, "damaged": times}
    elif harm is not flip and file.endswith(".wal"):
        assert outcomes["told to be lost"] >= times
        assert not outcomes["damaged"]
    elif file == "results.contents":
        assert outcomes == {"right": 4 * times}


def test_a_shard_is_read_once_to_verify_it_and_again_when_it_has_changed(opened_store, monkeypatch):
    put(opened_store, "key", make_rows(MANY))
    sums = []
    checksum = shards._compute_checksum
    monkeypatch.setattr(shards, "_compute_checksum", lambda path: sums.append(path.name) or checksum(path))
    access = opened_store.rows("key")
    for _ in range(3):
        access.count()
        opened_store.rows("key").top(3)
    assert sums == [f"{number:05d}.parquet" for number in range(4)]
    shard = folder_of(opened_store) / "key" / "00002.parquet"
    before = shard.stat()
    flip(shard, random.Random(1))
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    for attempt in (access.table, lambda: access.export(shard.with_name("out.csv")), lambda: opened_store.rows("key")):
        with pytest.raises(StoreCorruptError, match=f"The shard {shard} is damaged .*`shardscape store check`"):
            attempt()
    assert sums[4:] == ["00002.parquet"]
    assert opened_store.find("key") is None  # so that exploring replaces it
    put(opened_store, "key", make_rows(MANY))
    assert opened_store.rows("key").count() == MANY


def test_rows_of_an_exploration_that_was_removed_say_so(stored):
    opened, _, access = stored
    opened.delete("key")
    for attempt in (access.count, access.table, lambda: opened.rows("key")):
        with pytest.raises(StoreError, match="has no exploration key"):
            attempt()


# The command ---------------------------------------------------------------------------------------------------------


def explored(path, batch, num_procs=4):
    return engine.explore(
        "megatron-126M", "a100_80g", num_procs=num_procs, max_batch_size=batch, datatype="float16", store=path
    )


@pytest.fixture
def ill(tmp_path, tmp_path_factory, monkeypatch):
    """The path of a store with one sound exploration, one damaged and one lost; and the keys of the three."""
    path = tmp_path / "results.duckdb"
    keys = [explored(path, batch).key for batch in (4, 8)]
    before = tmp_path_factory.mktemp("before") / "store"
    shutil.copytree(tmp_path, before)
    keys.append(explored(path, 16).key)
    shutil.copy(before / "results.duckdb", path)  # as if the log had been lost
    flip(path.with_name("results.rows") / keys[1] / "00000.parquet", random.Random(0))
    return path, keys


def check(path, *options):
    with pytest.raises(SystemExit) as ended:
        main(["store", "check", str(path), *options])
    return ended.value.code


def test_checking_tells_repairs_or_drops_what_is_damaged_or_lost(ill, capsys, tmp_path):
    path, (_, damaged, lost) = ill
    assert check(path) == 3
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"The exploration {damaged[:8]} of Megatron 126M on 4 x ")
    assert f"is damaged: The shard {path.with_name('results.rows') / damaged}/00000.parquet" in out[0]
    assert out[1].startswith(f"The exploration {lost[:8]} of Megatron 126M on 4 x ")
    assert "is not in the store" in out[1]
    # What the lost exploration kept beside the database is not on record any more.
    assert out[2].endswith(f"results.rows/{lost} is not of this store, as far as that knows, and is left alone.")
    assert len(out) == 4
    shutil.copytree(tmp_path, tmp_path.with_name("dropped"))
    dropped = tmp_path.with_name("dropped") / "results.duckdb"
    with pytest.warns(StoreLossWarning, match=lost[:8]):
        explored(path, 4)
    assert check(path, "--repair") == 0
    assert capsys.readouterr().out.count("It was explored again.") == 2
    assert check(path) == 0
    assert "3 explorations" not in capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert explored(path, 16).rows.count() == explored(path, 16).feasible
    assert check(dropped, "--drop") == 0
    capsys.readouterr()
    assert check(dropped) == 0
    with Store(dropped) as store:
        assert len(store.records()) == 1
        assert store.losses == []


def test_a_repair_that_fails_leaves_what_it_was_for_on_the_list(ill, monkeypatch, capsys):
    path, (_, damaged, lost) = ill

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("engine.explore_scenario", full)
    assert check(path, "--repair") != 0
    monkeypatch.undo()
    capsys.readouterr()
    with Store(path) as store:
        assert {key[:8] for key in (damaged, lost)} <= set(re.findall(r"\b[0-9a-f]{8}\b", " ".join(store.losses)))
    assert check(path, "--repair") == 0
    assert check(path) == 0


def test_an_empty_list_of_contents_is_begun_anew(tmp_path):
    """What a full disk, or a death between making the file and writing it, leaves."""
    path = tmp_path / "results.duckdb"
    key = explored(path, 4).key
    contents = path.with_name("results.contents")
    with Store(path):
        pass
    contents.write_bytes(b"")
    with Store(path) as store:
        assert store.losses == []
    assert key.encode() in contents.read_bytes()


# Texts and values -----------------------------------------------------------------------------------------------------

TEXTS = {
    "nothing": "NULL",
    "not JSON": "'{\"model\": '",
    "a number": "'5'",
    "an array": "'[[1], null]'",
    "an empty object": "'{}'",
    "other members": """'{"memory": -1.5, "model": [], "system": {"name": 7}, "cost_model": ["x"]}'""",
    "arrays without end": "repeat('[', 20000)",
    "a long word with a name that leads elsewhere": "'../../' || repeat('x', 100000) || chr(27)",
}
"""What stands in the place of a value, as SQL; converted to the column's type where that takes it."""
REPAIRED = ("key", "scenario", "shards", "content")
"""Columns whose values are looked after in all ways: told, dropped and repaired."""
EXPLORED_AGAIN = ("nothing", "an empty object", "a long word with a name that leads elsewhere")
"""Texts that are repaired: exploring again takes the longest, and does not look at what it replaces."""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """The folder of a store with an exploration for each text and one that stays sound, two of them in tables; and
    their scenarios and sizes."""
    path = tmp_path_factory.mktemp("many") / "results.duckdb"
    scenarios, sizes = [], {}
    with Store(path) as store:
        for number in range(len(TEXTS) + 1):
            with rows_in_tables() if number % 4 == 1 else nullcontext():
                found = explored(store, 2 * number + 2, num_procs=1)
            scenarios.append(found.scenario)
            sizes[found.key] = found.feasible
    return path.parent, scenarios, sizes


def values_of(path, scenarios):
    """What can be had of each exploration: its number of rows, or the class of the error, which has to be ours."""
    found, said = {}, []
    try:
        with Store(path) as store:
            said += [sentence for record in store.records() if (sentence := record.damage)] + store.losses
            for scenario in scenarios:
                try:
                    again = from_store(scenario, store)
                    found[scenario.key] = None if again is None else again.rows.count()
                except StoreError as error:
                    found[scenario.key] = type(error)
                    said.append(str(error))
    except StoreError as error:
        said.append(str(error))
        found = dict.fromkeys((scenario.key for scenario in scenarios), type(error))
    assert all(len(sentence) < 700 and sentence.isprintable() for sentence in said)
    return found


def told(path, capsys, *options):
    """Exit code and output of the check, which tells everything in short printable lines."""
    code = check(path, *options)
    out, err = capsys.readouterr()
    assert "fault of its own" not in err
    assert all(len(line) < 900 and line.isprintable() for line in (out + err).splitlines())
    return code, out + err


def alter(path, table, change):
    """Change a table, which then has no conditions and keys of its own any more: `change` is what is selected."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE TABLE changed AS SELECT * REPLACE ({change}) FROM {table}")
        connection.execute(f"DROP TABLE {table}; ALTER TABLE changed RENAME TO {table}")


def columns_of(path, table):
    """The columns of a table and their types."""
    with duckdb.connect(str(path), read_only=True) as connection:
        return {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {table}").fetchall()}


@pytest.mark.parametrize("table", ["exploration", "reduction"])
def test_no_stored_value_ends_in_an_error_of_another_kind(many, table, tmp_path, capsys):
    """Whatever stands in one: a sentence; the others can be read; the check tells, explores it again, or removes it."""
    folder, scenarios, sizes = many
    keys, kinds = list(sizes), columns_of(folder / "results.duckdb", table)
    numbers = [column for column, kind in kinds.items() if kind not in ("VARCHAR", "BLOB")]
    texts = [[(column, text) for text in TEXTS.values()] for column in kinds if column not in numbers]
    # Of all texts, a column of numbers or times takes only nothing and a number.
    few = [(column, text) for column in numbers for text in ("NULL", "'5'")]
    for chosen in (*texts, *(few[start : start + len(TEXTS)] for start in range(0, len(few), len(TEXTS)))):
        column = chosen[0][0]
        shutil.copytree(folder, tmp_path / column / "first")
        path, other = (tmp_path / column / name / "results.duckdb" for name in ("first", "second"))
        cases: dict[str, str] = {}
        for key, (name, text) in zip(keys, chosen, strict=False):
            cases[name] = cases.get(name, "") + f"WHEN key = '{key}' THEN TRY_CAST({text} AS {kinds[name]}) "
        alter(path, table, ", ".join(f"CASE {case} ELSE {name} END AS {name}" for name, case in cases.items()))
        found = values_of(path, scenarios)
        harmed = [key for key in keys if found[key] != sizes[key]]
        assert set(harmed) <= set(keys[: len(TEXTS)])
        code, out = told(path, capsys)
        assert (code, len(harmed) > 0) == (3, True)
        assert all(out.count(key[:8]) >= 1 for key in harmed)
        if column not in REPAIRED:
            continue
        gone = {key for key in keys if key[:8] in out}  # the check knows more: also what harms nobody's rows
        assert told(path, capsys, "--drop")[0] == 0
        assert told(path, capsys)[0] == 0
        assert values_of(path, scenarios) == {key: None if key in gone else size for key, size in sizes.items()}
        shutil.copytree(folder, other.parent)
        few_cases = "".join(
            f"WHEN key = '{key}' THEN TRY_CAST({TEXTS[name]} AS {kinds[column]}) "
            for key, name in zip(keys, EXPLORED_AGAIN, strict=False)
        )
        alter(other, table, f"CASE {few_cases} ELSE {column} END AS {column}")
        code, out = told(other, capsys, "--repair")
        assert code == 0 or column == "key"  # nobody knows what was explored under a key that is none
        assert values_of(other, scenarios) == sizes, out


@pytest.mark.parametrize("table", ["exploration", "made", "meta", "reduction"])
def test_no_column_of_another_type_ends_in_an_error_of_another_kind(many, table, tmp_path, capsys):
    folder, scenarios, _ = many
    path = tmp_path / "copy" / "results.duckdb"
    for number, column in enumerate(columns_of(folder / "results.duckdb", table)):
        shutil.copytree(folder, tmp_path / "copy")
        alter(path, table, f"{('CAST(NULL AS VARCHAR[])', 'TRUE')[number % 2]} AS {column}")
        assert set(values_of(path, scenarios[:1]).values()) <= {StoreCorruptError, StoreVersionError}
        assert told(path, capsys)[0] == 3
        shutil.rmtree(tmp_path / "copy")


@pytest.mark.parametrize("text", ["NULL", "'{}'", TEXTS["a long word with a name that leads elsewhere"]])
def test_a_store_that_does_not_know_itself_any_more_keeps_its_list(many, tmp_path, text):
    folder, scenarios, sizes = many
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / "results.duckdb"
    alter(path, "meta", f"CASE WHEN name = 'identity' THEN {text} ELSE value END AS value")
    list_before = path.with_name("results.contents").read_bytes()
    with Store(path, read_only=True) as store:
        assert len(store.records()) == len(sizes)
    with Store(path) as store:
        assert store.losses == []
    assert values_of(path, scenarios[:1]) == {scenarios[0].key: sizes[scenarios[0].key]}
    assert path.with_name("results.contents").read_bytes() == list_before


def test_no_line_of_the_list_of_contents_ends_in_an_error_of_another_kind(many, tmp_path, capsys):
    folder, scenarios, sizes = many
    whole = {"key": "lost", "created_at": "2026-01-01T00:00:00", "scenario": {"model": "m"}}
    lines = ["", "5", "[]", "null", "{}", "[" * 200_000, "NaN", json.dumps([whole]), "\x00"]
    for name in whole:
        lines.append(json.dumps({key: value for key, value in whole.items() if key != name}))
        values = (None, 5, [], [{}], {"model": {"name": "\x1b"}, "system": {"title": 5}}, "\x1b[31m", "x" * 10**6)
        lines += [json.dumps({"key": f"lost{len(lines)}", **whole, name: value}) for value in values]
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / "results.duckdb"
    mark, *_ = (tmp_path / "copy" / "results.contents").read_bytes().split(b"\n")
    checked = [b"%08x %s" % (zlib.crc32(line.encode()), line.encode()) for line in lines]
    (tmp_path / "copy" / "results.contents").write_bytes(b"\n".join([mark, *checked, b""]))
    assert values_of(path, scenarios) == sizes
    code, out = told(path, capsys)
    assert code == 3
    assert "lines are damaged" in out
    assert told(path, capsys, "--drop")[0] == 0
    assert told(path, capsys)[0] == 0


def make_old(store):
    """Turn a store into what the layout before this one was: no record of files, no checksums, shards by bare name."""
    with store._database().transaction() as cursor:
        cursor.execute("DROP TABLE made")
        cursor.execute("DELETE FROM meta WHERE name = 'identity'")
        cursor.execute("UPDATE meta SET value = '1' WHERE name = 'layout'")
        cursor.execute(
            "UPDATE exploration SET shards = regexp_replace(replace(shards, key || '/', ''), "
            "', \"checksum\": [0-9]+', '', 'g')"
        )
        old = cursor.execute("SELECT shards FROM exploration WHERE key = 'key'").fetchall()[0][0]
    assert old.startswith('[{"name": "00000.parquet", "bytes": ')
    assert "checksum" not in old


def test_a_store_of_the_layout_before_checksums_opens_and_gets_them(store_path, capsys):
    rows = make_rows(MANY)
    with Store(store_path) as store:
        put(store, "key", rows)
        with rows_in_tables():
            put(store, "small", make_rows(10))
        make_old(store)
    store_path.with_name("results.contents").unlink()
    with Store(store_path, read_only=True) as store:
        assert decoded(store.rows("key").table()).equals(decoded(rows))
        assert [finding.kind for finding in check_store(store)] == ["unprotected"]
    assert check(store_path) == 0
    assert "4 shards from before there were checksums" in capsys.readouterr().out
    with Store(store_path) as store:
        assert decoded(store.rows("key").table()).equals(decoded(rows))
    assert check(store_path, "--repair") == 0
    flip(store_path.with_name("results.rows") / "key" / "00001.parquet", random.Random(3))
    with Store(store_path) as store:
        with pytest.raises(StoreCorruptError):
            store.rows("key")
        for key in ("key", "small"):
            store.delete(key)
        assert not folder_of(store).exists()
