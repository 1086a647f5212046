"""Samples as a file, and the command line: what it writes, prints and refuses. No PyTorch is needed for these."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import engine.measure
import hardware
from engine.cost_models.calibrated import parameters_of
from engine.measure import MeasureError, devices, load_samples, samples_document, samples_of
from engine.measure.system_document import resembling
from tests.engine.measure.synthetic import TRUE, cpu, h100

Answer = tuple[int, str, str]
Command = Callable[..., Answer]


@pytest.fixture
def command(shardscape: Command) -> Command:
    return partial(shardscape, "measure")


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    path = tmp_path / "h100.json"
    path.write_text(json.dumps(samples_document(h100())), encoding="utf-8")
    return path


def test_samples_come_back_from_a_file(timings: Path) -> None:
    assert load_samples(timings) == h100()
    assert samples_of(samples_document(cpu())) == cpu()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "shardscape-samples/2"}, "written by a newer Shardscape"),
        ({"device": None}, "device"),
        ({"products": [{"datatype": "int3"}]}, "products[0].datatype"),
        ({"colour": 3}, "unknown key 'colour'"),
        ({"launches": [{"kind": "kernel", "time": {"seconds": -1.0, "spread": 0.0, "repeats": 1}}]}, "time.seconds"),
    ],
)
def test_a_file_that_holds_no_samples_is_told_in_one_sentence(
    command: Command, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({**samples_document(h100()), **change}), encoding="utf-8")
    with pytest.raises(MeasureError, match=r"\.$"):
        load_samples(path)
    code, out, err = command("--samples", path, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.json"]


def test_the_command_writes_documents_that_the_library_reads(command: Command, tmp_path: Path, timings: Path) -> None:
    code, out, err = command("--samples", timings, "--like", "h100_80g_sxm", "--name", "ours", "--out", tmp_path / ".")
    assert code == 0
    system = hardware.load(tmp_path / "ours.system.json")
    calibration = hardware.load_calibration(tmp_path / "ours.calibration.json")
    assert system.name == calibration.system == "ours"
    assert system.derived_from == "h100_80g_sxm"
    assert parameters_of(calibration).attention == pytest.approx(TRUE["attention"], rel=5e-3)
    assert load_samples(tmp_path / "ours.samples.json") == h100()
    line = next(line for line in out.splitlines() if line.startswith("attention "))
    assert line.split()[1] == f"{calibration.parameters['attention'].value:.4g}"
    assert "ours.calibration.json" in err
    assert not list(tmp_path.glob(".*"))


def test_json_is_what_the_files_hold(command: Command, tmp_path: Path, timings: Path) -> None:
    code, out, err = command("--samples", timings, "--out", tmp_path, "--json")
    document = json.loads(out)
    assert code == 0
    for kind, path in zip(("system", "calibration", "samples"), document["files"], strict=True):
        assert json.loads(Path(path).read_text(encoding="utf-8")) == document[kind]
    assert document["system"]["name"] == "nvidia_h100_80gb_hbm3_measured"
    assert document["system"]["assumptions"]
    assert "--like" in err
    assert "h100_80g_sxm" in err


def test_systems_called_like_the_device_are_proposed() -> None:
    names = resembling(h100())
    assert "h100_80g_sxm" in names
    assert all(name.startswith("h100") for name in names)
    assert resembling(cpu()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("--like", "h100_81g"), 2, "no system named 'h100_81g'"),
        (("--name", "../escape"), 2, "--name cannot be '../escape'"),
        (("--out", "/proc/nowhere"), 3, "no folder that exists"),
    ],
)
def test_what_cannot_work_is_refused_before_measuring(
    command: Command, tmp_path: Path, timings: Path, arguments: tuple[str, str], code: int, told: str
) -> None:
    given = ("--out", tmp_path, *arguments)
    found, out, err = command("--samples", timings, *given)
    assert (found, out) == (code, "")
    assert told in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["h100.json"]


def test_without_pytorch_one_sentence_says_how_to_install_it(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, err = command("--quick", "--out", tmp_path)
    assert (code, out) == (2, "")
    assert err == devices.INSTALL + "\n"
    assert "pip install" in err
    assert ".ci/torch.txt" in err
    assert not list(tmp_path.iterdir())


def test_pytorch_is_imported_when_measuring_only() -> None:
    """Everything but timing works without it, and nothing waits for it to load."""
    for path in Path(engine.measure.__file__).parent.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        at_import = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [line for line in at_import if line.split()[1].split(".")[0] == "torch"], path
