"""Folders of results: no flipped bit changes an answer without a word, and folders of earlier versions still open."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from engine import codesign
from engine.codesign.checksums import CHECKSUM
from tests.engine.codesign.small_study import study

SMALL = {"models": ["megatron-126M"], "sizes": [4, 8], "constraints": [{"quantity": "usd", "at_most": 1e6}]}
"""16 points."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "results"
    codesign.run(study(**SMALL), place, workers=1)
    return place


def files_of(place: Path) -> list[Path]:
    return sorted(each for each in place.rglob("*") if each.is_file())


def written_by_an_earlier_version(place: Path) -> None:
    """Rewrites a folder as versions without checksums did."""
    document = json.loads((place / "study.json").read_text())
    del document[CHECKSUM]
    (place / "study.json").write_text(json.dumps(document, indent=1))
    for part in (place / "parts").iterdir():
        rows, sink = pq.ParquetFile(part).read(), io.BytesIO()
        metadata = pq.read_metadata(part).metadata
        bare, how = rows.replace_schema_metadata(None), {"compression": "zstd", "write_statistics": False}
        with pq.ParquetWriter(sink, bare.schema, store_schema=False, **how) as file:
            file.write_table(bare)
            file.add_key_value_metadata({"study": metadata[b"study"]})
        part.write_bytes(sink.getvalue())


def flips(content: bytes, chance: random.Random, count: int) -> Iterator[tuple[int, bytes]]:
    """A flipped bit in so many bytes of a file, and in all of its checksum and the mark before it."""
    start = content.find(b"checksum")
    around = range(start, start + 40) if start >= 0 else range(0)
    for place in sorted({*chance.sample(range(len(content)), count), *around}):
        yield place, content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def answers(place: Path) -> tuple[pd.DataFrame, pd.DataFrame, Any]:
    found = codesign.results(place)
    return found.rows, found.designs(), found.best()


def test_no_flipped_bit_changes_an_answer_silently(folder: Path) -> None:
    """In the study and in the part, the checksums included: refused by one sentence."""
    chance, told, sentences = random.Random(20), Counter[str](), []
    good = answers(folder)
    for file in files_of(folder):
        content = file.read_bytes()
        for place, damaged in flips(content, chance, 400):
            file.write_bytes(damaged)
            try:
                rows, designs, best = answers(folder)
            except codesign.FolderError as problem:
                sentences.append(str(problem))
                told[file.suffix] += 1
            else:
                assert rows.equals(good[0]), f"byte {place} of {file.name}"
                assert designs.equals(good[1]), f"byte {place} of {file.name}"
                assert best == good[2], f"byte {place} of {file.name}"
        file.write_bytes(content)
    assert all(each.endswith(".") and "\n" not in each for each in sentences)
    assert min(told[".json"], told[".parquet"]) > 350


def test_a_damaged_folder_is_mended_by_running_its_study_again(folder: Path) -> None:
    good = answers(folder)
    for file in files_of(folder):
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 16
        file.write_bytes(content)
        check = codesign.check_folder(folder)
        assert (check.is_sound, check.files[file.name]) == (False, "damaged")
        codesign.run(study(**SMALL), folder, workers=1)
        assert set(codesign.check_folder(folder).files.values()) == {"verified"}
        pd.testing.assert_frame_equal(answers(folder)[0], good[0], check_exact=True)
    # So is a study of which nothing is computed yet.
    (empty := folder.with_name("empty")).mkdir()
    (empty / "study.json").write_bytes((folder / "study.json").read_bytes().replace(b"small", b"smell"))
    codesign.run(study(**SMALL), empty, workers=1)
    # What is no study at all stands beside parts of another one: nothing is written over them.
    (folder / "study.json").write_text("{")
    with pytest.raises(codesign.FolderError, match=r"study\.json"):
        codesign.run(study(**SMALL, name="other", batches=[4]), folder, workers=1)


def test_folders_of_earlier_versions_open_go_on_and_get_checksums(folder: Path, shardscape: Any) -> None:
    good = answers(folder)
    code, out, _ = shardscape("codesign", folder, "--check")
    assert (code, out) == (0, "2 files: 2 verified by checksum.\n16 of 16 points can be read.\n")
    written_by_an_earlier_version(folder)
    pd.testing.assert_frame_equal(answers(folder)[0], good[0], check_exact=True)
    code, out, _ = shardscape("codesign", folder, "--check", "--json")
    check = json.loads(out)
    assert (code, check["sound"], check["points"]) == (0, True, 16)
    assert set(check["files"].values()) == {"no checksum"}
    # Nothing else than a sentence comes of damage in such a file either, though it may be silent there.
    chance = random.Random(5)
    for file in files_of(folder):
        content = file.read_bytes()
        for _, damaged in flips(content, chance, 150):
            file.write_bytes(damaged)
            with suppress(codesign.FolderError):
                codesign.results(folder).designs()
        file.write_bytes(content)
    # The other half of an interrupted run is written, and merged, with checksums.
    (part,) = (folder / "parts").iterdir()
    part.unlink()
    with pytest.raises(codesign.StudyCancelled):
        codesign.run(study(**SMALL), folder, workers=1, cancel=lambda: True)
    written_by_an_earlier_version(folder)
    assert set(codesign.check_folder(folder).files.values()) == {"no checksum"}
    codesign.run(study(**SMALL), folder, workers=1)
    assert codesign.check_folder(folder).files[next((folder / "parts").iterdir()).name] == "verified"
    pd.testing.assert_frame_equal(answers(folder)[0], good[0], check_exact=True)
    code, out, _ = shardscape("codesign", folder / "study.json", "--count")
    assert (code, out[:10]) == (0, "16 points:")
    # Damage is told by the exit code of a store, and a file that is no folder is refused.
    file = next((folder / "parts").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"2")
    code, out, _ = shardscape("codesign", folder, "--check")
    assert (code, "1 damaged" in out, file.name in out) == (3, True, True)
    code, _, told = shardscape("codesign", "hbm_capacity", "--check")
    assert (code, "is no folder of results" in told) == (2, True)
