"""What DuckDB, Arrow and Typer tell only by words and private names is still told so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import _duckdb
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from engine.cli import compat as cli_compat
from engine.store import compat


def message(error: BaseException) -> str:
    return str(error).lower()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "results.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS x FROM range(100000)")
    return path


def test_a_database_held_by_another_process(database: Path) -> None:
    program = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        with pytest.raises(duckdb.IOException) as raised:
            duckdb.connect(str(database))
        assert compat.LOCKED in message(raised.value)
        assert f"PID {holder.pid}" in str(raised.value)
        assert holder.stdin is not None
        holder.stdin.close()


def test_a_database_that_this_process_has_open_otherwise(database: Path) -> None:
    with duckdb.connect(str(database)), pytest.raises(duckdb.Error) as raised:
        duckdb.connect(str(database), read_only=True)
    assert compat.OPENED_OTHERWISE in message(raised.value)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "text.duckdb"
    path.write_text("no database " * 2_000, encoding="utf-8")
    with pytest.raises(duckdb.Error) as raised:
        duckdb.connect(str(path))
    assert compat.NOT_A_DATABASE[0] in message(raised.value)


def test_a_database_of_another_version() -> None:
    """None can be made here: the header has a checksum, so that a version changed by hand is damage."""
    library = Path(_duckdb.__file__).read_bytes()
    places = [found.start() for found in re.finditer(rb"read a database file", library)]
    # What can be printed around each.
    around = [(library[max(0, at - 1000) : at], library[at : at + 1000]) for at in places]
    told = [(re.findall(rb"[ -~]*\Z", a)[0] + re.findall(rb"\A[ -~]*", b)[0]).lower() for a, b in around]
    assert any(all(phrase.encode() in each for phrase in compat.OTHER_VERSION) for each in told)


def test_a_damaged_database_and_a_damaged_parquet_file(database: Path, tmp_path: Path) -> None:
    content = bytearray(database.read_bytes())
    content[4096 * 3 + 100 :] = bytes(len(content) - (4096 * 3 + 100))
    database.write_bytes(bytes(content))
    with pytest.raises(duckdb.Error) as raised, duckdb.connect(str(database)) as connection:
        connection.execute("SELECT sum(x) FROM t").fetchall()
    assert any(phrase in message(raised.value) for phrase in compat.DAMAGED)
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": range(1000)}), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(duckdb.Error) as from_duckdb:
        duckdb.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    with pytest.raises(pa.ArrowInvalid) as from_arrow:
        pq.read_table(path)
    for each in (from_duckdb, from_arrow):
        assert any(phrase in message(each.value) for phrase in compat.DAMAGED)


def test_a_log_begins_as_told_and_lies_beside_the_database(tmp_path: Path) -> None:
    path = tmp_path / "new.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
        log = path.with_name(path.name + compat.LOG_SUFFIX)
        assert log.read_bytes().startswith(compat.LOG_BEGINS)


def test_what_has_no_room_in_memory_is_written_under_the_name_told(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET memory_limit = '60MB'")
        connection.execute("SET threads = 1")
        connection.execute(f"SET temp_directory = '{tmp_path}'")
        connection.execute("CREATE TEMP TABLE t AS SELECT hash(range) AS x, range AS y FROM range(12000000)")
        assert list(tmp_path.glob(compat.SPILLED))


def test_the_catalogues_functions_are_there(database: Path) -> None:
    with duckdb.connect(str(database)) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("t",)]
        assert connection.execute("SELECT block_size FROM pragma_database_size()").fetchall()[0][0] > 0
        assert connection.execute("SELECT count(*) FROM pragma_storage_info('t')").fetchall()[0][0] > 0


def test_typers_errors_are_told_from_others_and_commands_run_under_our_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[bool] = []

    class Watched(cli_compat.Group):
        def invoke(self, ctx: object) -> object:
            try:
                return super().invoke(ctx)  # type: ignore[arg-type]
            except Exception as error:
                seen.append(cli_compat.is_typers(error))
                raise

    app = typer.Typer(cls=Watched, add_completion=False)
    app.command()(lambda: None)
    app.command("other")(lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli_compat.run_app(app, ["no-such-command"], "shardscape")
    assert ended.value.code == 2
    assert seen == [True]
    assert "shardscape" in capsys.readouterr().err
    assert not cli_compat.is_typers(ValueError())
