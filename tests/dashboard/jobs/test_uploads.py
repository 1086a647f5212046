"""Files that people bring are read in processes whose time and memory are bounded, never in the server."""

from __future__ import annotations

import ast
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

import dashboard
from dashboard.jobs.uploads import UploadReader
from dashboard.link.document_validation import Refused, parse, read
from engine.planners.contract import PlanError
from models import Model

HERE = Path(dashboard.__file__).parent


@pytest.fixture(scope="module")
def reader() -> Iterator[UploadReader]:
    made = UploadReader(seconds=4.0, memory_gib=1.5)
    yield made
    made.close()


def where_it_runs(content: bytes) -> int:
    return os.getpid()


def takes_memory(content: bytes) -> int:
    return len("x" * 2**32)


def takes_time(content: bytes) -> None:
    while True:
        pass


def ends(content: bytes) -> None:
    os._exit(1)


def refuses(content: bytes) -> None:
    raise PlanError("The table has no rows.")


def decodes(content: bytes) -> str:
    return content.decode("utf-8")


def table_in(content: bytes) -> pd.DataFrame:
    return pd.DataFrame({"rows": [1, 2, 3]})


def fails(content: bytes) -> None:
    raise ValueError("of a library")


def test_a_file_is_read_in_another_process(reader: UploadReader) -> None:
    assert reader.read(where_it_runs, b"1") != os.getpid()
    found = reader.read(read, (HERE.parent / "models" / "library" / "llama-3-8B.json").read_bytes(), "mine.json")
    assert isinstance(found, Model)
    assert found.name == "llama-3-8B"
    assert reader.read(table_in, b"")["rows"].sum() == 6


@pytest.mark.parametrize(
    ("function", "content", "sentence"),
    [
        (takes_memory, b"", "Reading this file takes more than 1.5 GiB of memory, the limit here."),
        (takes_time, b"", "Reading this file took more than 4 s, the limit here; upload a smaller one."),
        (ends, b"", "The process that was reading the file has ended, perhaps for lack of memory."),
        (refuses, b"", "The table has no rows."),
        (decodes, b"\xff", "The file is not UTF-8 text."),
        (decodes, b"1" * 5_000, "The file has a number of 5,000 digits; at most 1,000 are read."),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_goes_wrong_is_one_sentence_and_the_next_file_is_read(
    reader: UploadReader, function: object, content: bytes, sentence: str
) -> None:
    for _ in range(2):  # the second time from what is known
        with pytest.raises(Refused) as refusal:
            reader.read(function, content)  # type: ignore[arg-type]
        assert str(refusal.value) == sentence
    started = time.monotonic()
    with pytest.raises(Refused, match="valid JSON"):
        reader.read(parse, b"{" + sentence.encode(), "a.json")
    assert time.monotonic() - started < 60


def test_a_fault_of_our_own_is_no_refusal(reader: UploadReader) -> None:
    with pytest.raises(RuntimeError, match="of a library"):
        reader.read(fails, b"")


def test_there_is_one_field_for_files_and_one_way_to_read_them() -> None:
    """Every page takes files by `widgets.upload`; `read_file`, or `read_table` by it, reads them."""
    fields, pages = [], []
    for file in HERE.rglob("*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        named = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in calls}
        relative = str(file.relative_to(HERE))
        if "file_uploader" in named:
            fields.append(relative)
        if named & {"file_field", "files_field"} and relative != "widgets/upload.py":
            pages.append(relative)
            beside = (other.read_text("utf-8") for other in file.parent.glob("*.py"))
            assert any("read_file(" in text or "read_table(" in text for text in beside), relative
    assert fields == ["widgets/upload.py"]
    assert len(pages) == 15
