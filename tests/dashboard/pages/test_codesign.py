"""The Co-design page: a ready study to its fronts, a study of one's own, and links that cannot be."""

from __future__ import annotations

import base64
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.files import codesign_report
from dashboard.files.codesign_report import DesignReportQuestion
from dashboard.jobs import codesign_studies
from dashboard.jobs.server import server
from dashboard.link.text_encoding import folded
from dashboard.link.user_files import user_files
from dashboard.pages.codesign import view
from dashboard.pages.codesign import worth as view_of_worth
from dashboard.pages.codesign.downloads import _designs_file, table_file
from dashboard.pages.codesign.studies import document_of
from dashboard.queries import design_stretches
from dashboard.queries.design_accuracy import error_told
from dashboard.queries.design_phrases import changed, phrases
from engine import codesign
from tests.dashboard.files.test_round_trip import _sheet
from tests.dashboard.page_runs import html, page_alone, plainly, plots
from tests.dashboard.server import own_server
from tests.engine.codesign.small_study import ONE_POINT

SMALL = {
    "format": "shardscape-study/1",
    "name": "Two prices of memory",
    "models": ["gpt3-13B"],
    "systems": ["h100_80g_nvl8"],
    "edits": [
        {"parameter": "hbm_capacity", "values": [20, 40, 80]},
        {"parameter": "host_capacity", "values": [0, 512]},
    ],
    "sizes": [8],
    "datatypes": ["float16"],
    "batches": [16],
    "cost_model": "calculon",
    "costs": {"preset": "h100_2024"},
    "constraints": [{"quantity": "usd", "at_most": 400_000}],
}
NONSENSE = ("<script>alert(1)</script>", "99999999999999999999", "-1", "nan", "', drop table x; --", "é" * 500)
NAMES = ("study", "own", "up", "across", "of", "at", "picture", "x", "y", "design", "kept", "worth")


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Iterator[Path]:
    """Every test has its own folder of results, and its own kept files."""
    with own_server(tmp_path):
        yield tmp_path / "codesign"


def run(link: Mapping[str, str], own: str | None = None) -> AppTest:
    app = page_alone("codesign")
    app.session_state["_url"] = dict(link)
    if own is not None:
        app.session_state["_codesign_own"] = own
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def searched(app: AppTest) -> AppTest:
    """The page after its run."""
    app.button(key="codesign_run").click().run()
    assert all(job.wait(120) for job in server().board.jobs(server().codesign_studies))
    app.run()
    assert plots(app), html(app) + str([each.value for each in app.error])
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_a_study_of_ones_own_is_counted_searched_and_answered(place: Path) -> None:
    study = codesign.Study.from_document(SMALL)
    folder = str(place / study.key)
    app = run({"codesign_study": "own"}, json.dumps(SMALL))
    told = plainly(" ".join(each.value for each in app.markdown)).replace("\\", "")
    (timed,) = (job for job in server().board.jobs(server().study_times) if job.study.key == study.key)
    assert timed.wait(60)
    app.run()
    told = plainly(" ".join(each.value for each in app.markdown)).replace("\\", "")
    assert codesign.estimate(study, 1, timed.times).sentence in told
    assert not plots(app)
    found = codesign_studies.so_far(study, folder)
    assert found is None
    app = searched(app)
    assert "6 of 6" in html(app)
    assert any(each.value.startswith("Designs are ranked by their fastest execution;") for each in app.caption)
    found = codesign_studies.so_far(study, folder)
    assert found is not None
    shown = next(each.value for each in app.dataframe if "Design" in each.value)
    assert shown["Design"].tolist() == found.front()["design"].tolist()
    binding = next(each.value for each in app.dataframe if "Constraint" in each.value)
    assert binding["Constraint"].tolist() == found.binding()["constraint"].tolist()
    # Other prices and weights ask the same points.
    heavy = codesign.Study.from_document(SMALL | {"models": [{"model": "gpt3-13B", "weight": 7}], "name": "heavy"})
    asked = codesign_studies.so_far(heavy, folder)
    assert asked is not None
    assert asked.study.document == heavy.document
    cheap = SMALL | {"costs": {"usd": {"processor": 1000, "mem1_gib": 10}}}
    again = run({"codesign_study": "own"}, json.dumps(cheap))
    assert "6 of 6" in html(again)
    for picture in ("parallel", "map"):
        assert plots(run({"codesign_study": "own", "codesign_picture": picture}, json.dumps(SMALL)))
    for value in NONSENSE:
        link = {f"codesign_{name}": value for name in NAMES} | {"codesign_study": "own"}
        assert plots(run(link, json.dumps(SMALL)))


def test_what_is_kept_narrows_tables_files_and_choices_and_is_taken_back(place: Path) -> None:
    study = codesign.Study.from_document(SMALL | {"systems": ["a100_80g", "h100_80g_nvl8"], "constraints": []})
    codesign.run(study, place / study.key, workers=1)
    found = codesign.results(place / study.key)
    designs = found.designs()
    middle = float(designs["usd"].median())
    kept = {"system": (1.0, 1.0), "usd": (-np.inf, middle)}
    inside = designs[(designs["system"] == "h100_80g_nvl8") & (designs["usd"] <= middle)]
    assert 0 < len(inside) < len(designs) / 2
    text = design_stretches.linked(kept)
    assert text is not None
    assert design_stretches.in_link(text, designs.columns) == (kept, None)
    app = run({"codesign_study": "own", "codesign_kept": text}, document_of(study))
    front, table = [each.value for each in app.dataframe if "Design" in each.value][:2]
    assert sorted(table["Design"]) == inside[inside["status"] == "ok"]["design"].tolist()
    assert set(front["Design"]) == set(found.front()["design"]) & set(inside["design"])
    (chart,) = plots(app)
    faint = [np.array(each["marker"]["opacity"]) for each in chart.figure["data"] if each["name"] != "chosen"]
    assert faint
    question = DesignReportQuestion(
        *(codesign.QUANTITIES[name] for name in ("tokens_per_s", "usd")), codesign.MIX, "middle", {}, stretches=kept
    )
    rows = pd.read_csv(io.BytesIO(_designs_file(found, question, "all_designs", "csv")))
    assert rows["design"].tolist() == inside["design"].tolist()
    assert (
        "Only designs with system h100_80g_nvl8"
        in codesign_report.build(found, replace(question, names={"system": "system"}), "", None).decode()
    )
    (lines,) = plots(
        run({"codesign_study": "own", "codesign_kept": text, "codesign_picture": "parallel"}, document_of(study))
    )
    brushed = {
        each["name"]: each["constraintrange"]
        for each in lines.figure["data"][0]["dimensions"]
        if "constraintrange" in each
    }
    assert brushed.keys() == kept.keys()
    assert brushed["usd"][0] < designs[designs["status"] == "ok"]["usd"].min() < middle <= brushed["usd"][1]
    # Back, word by word; what is written by the keyboard is the same.
    app.button(key="codesign_drop_system").click().run()
    assert app.session_state["_url"]["codesign_kept"] == f"usd::{middle!r}".removesuffix(".0")
    app.button(key="codesign_clear").click().run()
    assert "codesign_kept" not in app.session_state["_url"]
    app.selectbox(key="codesign_keep_only_of").set_value("hbm_capacity").run()
    app.number_input(key="codesign_keep_only_hbm_capacity_-inf_inf_least").set_value(30.0)
    app.button(key="codesign_keep_only_use").click().run()
    assert app.session_state["_url"]["codesign_kept"] == "hbm_capacity:30:"
    # A brush of a choice ends at its values, and one of all designs is none.
    column = designs["hbm_capacity"]
    for ends, stretch in (((21, 90), (40.0, np.inf)), ((1, 99), None), ((41, 42), None), ((19, 41), (-np.inf, 40.0))):
        assert design_stretches.brushed(study, column, *ends, choice=True) == stretch
    app = run({"codesign_study": "own", "codesign_kept": "usd:5:4,nothing:1:2"}, document_of(study))
    assert "'usd:5:4'" in app.session_state["_url_problems"]["codesign_kept"]


def test_the_front_grows_while_designs_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []
    monkeypatch.setattr("streamlit.rerun", lambda: again.append(0))
    for ended, done, shown, runs in (
        (False, 0, 0, 0),
        (False, 8, 0, 1),
        (False, 10, 8, 0),
        (False, 11, 8, 1),
        (True, 99, 8, 0),
    ):
        again.clear()
        job: Any = SimpleNamespace(ended=ended, progress=SimpleNamespace(done=done))
        view._until_more(job, shown)
        assert len(again) == runs
    view._until_more(SimpleNamespace(ended=False, progress=None), 0)  # type: ignore[arg-type]
    assert not again


def test_what_is_no_study_is_one_sentence() -> None:
    wrong = {**SMALL, "sizes": []}
    app = run({"codesign_study": "own"}, json.dumps(wrong))
    assert len(app.error) == 1
    assert "sizes" in app.error[0].value
    huge = {
        **SMALL,
        "edits": [
            {"parameter": name, "from": 1, "to": 9, "count": 10_000}
            for name in ("hbm_capacity", "host_capacity", "hbm_bandwidth")
        ],
    }
    app = run({"codesign_study": "own"}, json.dumps(huge))
    assert len(app.error) + len(app.info) == 1
    for value in NONSENSE:
        assert not run({"codesign_study": value}).error


def test_files_of_a_study_come_back(tmp_path: Path) -> None:
    for name in codesign.ready_names():
        study = codesign.ready_study(name)
        again = codesign.Study.from_json(document_of(study).encode())
        assert (again.key, again.document) == (study.key, study.document)
    # Nothing in place of a preset's price, no source where the study says the same, and a price of its own.
    costs = {
        "preset": "h100_2024",
        "usd": {"mem1_gib": 0, "host": [32_000, 75_000]},
        "watts": {"processor": None},
        "sources": {"usd.mem1_gib": "ours"},
    }
    study = codesign.Study.from_document(SMALL | {"costs": costs})
    assert codesign.Study.from_json(document_of(study).encode()).document == study.document
    study = codesign.Study.from_document(SMALL)
    codesign.run(study, tmp_path, workers=1)
    found = codesign.results(tmp_path)
    designs = found.designs()
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(table_file(found, designs, "parquet"))), designs)
    with zipfile.ZipFile(io.BytesIO(table_file(found, designs, "excel"))) as packed:
        head, *rows = _sheet(packed.read("xl/worksheets/sheet1.xml"))
        assert 'name="Designs"' in packed.read("xl/workbook.xml").decode()
    for read in (pd.read_csv(io.BytesIO(table_file(found, designs, "csv"))), pd.DataFrame(rows, columns=head)):
        assert read["usd"].tolist() == designs["usd"].tolist()
        assert read["system"].tolist() == designs["system"].tolist()
    up, across = (codesign.QUANTITIES[name] for name in ("tokens_per_s", "usd"))
    asked = DesignReportQuestion(up, across, codesign.MIX, "middle", {"hbm_capacity": "HBM"})
    text = codesign_report.build(found, asked, "Told <b>", 3, "http://here/codesign").decode()
    whole = re.search(r'<pre id="study">(.*?)</pre>', text, re.DOTALL)
    assert whole is not None
    again = codesign.Study.from_json(unescape(whole[1]).encode())
    assert (again.key, again.to_document()) == (study.key, study.to_document())
    assert "Told &lt;b&gt;" in text
    front = found.front()
    assert all(f"<td>{number}</td>" in text for number in front["design"])
    assert f"<td>{codesign.breakdown(study, 3)['item'].iloc[0]}</td>" in text


PARTS = {
    "models": "gpt3-13B × 3, megatron-126M",
    "sizes": "8, 16",
    "systems": "a100_80g, h100_80g_nvl8",
    "datatypes": "float16, bfloat16",
    "batches": "16, 2 per processor",
    "objectives": "usd, watts",
    "edits": "hbm_capacity: 20 to 160 in 4 log\nhost_capacity/host_bandwidth: 0/450, 512/900\n"
    "net1_bandwidth: 0.5, 2 times own\nhbm_bandwidth follows hbm_capacity ^ 0.5",
    "constraints": "usd at most 400000\ndays at least 1 at most 50000",
}


def test_every_part_of_the_sentence_can_be_written_and_read() -> None:
    study = codesign.Study.from_document(SMALL)
    for part in phrases(study):
        assert changed(study, part.name, part.text).document == study.document
        if part.name != "datatypes":  # of which these systems share one
            study = changed(study, part.name, PARTS[part.name])
            assert next(each.text for each in phrases(study) if each.name == part.name) == PARTS[part.name]
    assert study.document.edits[0].rows[-1] == (160.0,)
    assert [each.weight for each in study.document.models] == [3.0, 1.0]
    assert (study.document.follow[0].exponent, study.document.constraints[1].at_most) == (0.5, 50_000)
    for name, text, told in (
        ("models", "", "models"),
        ("sizes", "8, x", "'x' is not a number"),
        ("systems", "h100", "h100"),
        ("edits", "hbm_capacity 80", "is not a change; write one such as"),
        ("edits", "hbm: 1", "What-if parameter"),
        ("constraints", "usd below 5", "is not a constraint; write"),
        ("batches", "many", "is not a number"),
        ("edits", "hbm_capacity: 20 to x in 3", "is not a number"),
        ("sizes", "é" * 500, "is not a number"),
    ):
        with pytest.raises(ValueError, match=told) as refused:
            changed(study, name, text)
        assert "\n" not in str(refused.value)


def test_a_part_of_the_sentence_is_changed_on_the_page() -> None:
    app = run({"codesign_study": "hbm_capacity"})
    app.text_input(key="codesign_part_sizes_text").set_value("64, 128")
    app.button(key="codesign_part_sizes_use").click().run()
    assert not app.exception
    assert app.session_state["_url"]["codesign_study"] == "own"
    assert codesign.Study.from_json(app.session_state["_codesign_own"].encode()).document.sizes == [64, 128]
    assert app.text_input(key="codesign_part_sizes_text~1").value == "64, 128"
    app.text_input(key="codesign_part_sizes_text~1").set_value("0")
    app.button(key="codesign_part_sizes_use").click().run()
    assert "'sizes[0]' is 0" in plainly(app.toast[0].value).replace("\\", "")
    assert app.text_input(key="codesign_part_sizes_text~1").value == "0", "what was written is there to be mended"
    assert codesign.Study.from_json(app.session_state["_codesign_own"].encode()).document.sizes == [64, 128]


def test_a_study_travels_in_the_link_and_what_cannot_be_is_told() -> None:
    study = codesign.Study.from_document(SMALL)
    text = folded(json.dumps(json.loads(document_of(study)), separators=(",", ":")))
    assert len(text) < 1_000
    app = run({"codesign_study": "own", "codesign_own": text})
    assert "Two prices of memory" in html(app)
    told = plainly(" ".join(each.value for each in app.markdown)).replace("\\", "")
    assert codesign.estimate(study, 1).counts in told
    (address,) = (each.value for each in app.code if "codesign_own" in each.value)
    parameters = dict(parse_qsl(urlsplit(address).query))
    assert parameters == {"codesign_study": "own", "codesign_own": text}
    # What is no study, or half of one, is told, and the session's own stands instead.
    for broken in (text[:-9], folded(json.dumps({"models": []})), "2" + text[1:]):
        app = run({"codesign_study": "own", "codesign_own": broken}, json.dumps(SMALL))
        told = [each.value for each in app.error]
        if "_url_problems" in app.session_state:
            told += app.session_state["_url_problems"].values()
        (sentence,) = told
        assert sentence.endswith(".")
    # What is too long for a link goes as a file.
    long = SMALL | {"description": "".join(chr(0x4E00 + number * 7919 % 20_000) for number in range(3_900))}
    app = run({"codesign_study": "own"}, json.dumps(long))
    assert not app.code
    assert any("file of the study" in each.value for each in app.caption)


LIMITED: dict[str, Any] = SMALL | {
    "sizes": [8, 16],
    "edits": [*SMALL["edits"], {"parameter": "net0_bandwidth", "values": [225, 450]}],
    "constraints": [
        {"quantity": "usd", "at_most": 330_000},
        {"quantity": "watts", "at_most": 14_000},
        {"quantity": "processors", "at_most": 1e6},
    ],
}


def values_of(trace: Mapping[str, Any], axis: str) -> list[float]:
    values = trace[axis]
    if isinstance(values, Mapping):
        return [float(each) for each in np.frombuffer(base64.b64decode(values["bdata"]), values["dtype"])]
    return [float(each) for each in values]


def test_refused_designs_are_drawn_as_refused_and_axes_show_allowed_ones(place: Path) -> None:
    study = codesign.Study.from_document(LIMITED)
    codesign.run(study, place / study.key, workers=1)
    found = codesign.results(place / study.key)
    designs = found.designs()
    report = found.binding_report()
    allowed = designs[(designs["usd"] <= 330_000) & (designs["watts"] <= 14_000)]
    refused = designs[(designs["status"] == "ok") & ~designs["design"].isin(allowed["design"])]
    assert min(len(allowed), len(refused)) > 3
    app = run({"codesign_study": "own"}, document_of(study))
    (chart,) = plots(app)
    marks = {trace["name"]: trace for trace in chart.figure["data"]}
    assert sorted(values_of(marks["refused"], "x")) == sorted(refused["usd"])
    assert sorted([*values_of(marks["beaten"], "x"), *values_of(marks["front"], "x")]) == sorted(
        allowed[allowed["status"] == "ok"]["usd"]
    )
    assert marks["refused"]["marker"]["symbol"] != marks["beaten"]["marker"].get("symbol", "circle")
    assert any("Refused by price" in each for each in marks["refused"]["hovertext"])
    layout = chart.figure["layout"]
    assert layout["xaxis"]["range"][1] < 1.1 * 330_000 < refused["usd"].max()
    assert [shape["x0"] for shape in layout["shapes"]] == [330_000]
    notes = [note["text"] for note in layout["annotations"]]
    assert "Price at most 330,000 USD" in notes
    assert any("refused design" in note and "outside" in note for note in notes)
    # The tile, the sentence about the set that binds, and what is free.
    told = html(app)
    assert f"of {len(designs)}; {report.refused} refused: price" in told
    assert report.smallest_set == (0, 1)
    words = plainly(" ".join(each.value for each in app.markdown)).replace("\\", "")
    assert "Smallest binding set: Price at most 330,000 USD and Power at most 14,000 W. Without it" in words
    captions = plainly(" ".join(each.value for each in app.caption)).replace("\\", "")
    assert "No price given for NVLink bandwidth: the front treats it as free." in captions
    # No picture takes a refused design for the best of its cell or its value.
    (mapped,) = plots(
        run(
            {
                "codesign_study": "own",
                "codesign_picture": "map",
                "codesign_x": "hbm_capacity",
                "codesign_y": "processors",
            },
            document_of(study),
        )
    )
    heat = mapped.figure["data"][0]
    cells = np.frombuffer(base64.b64decode(heat["z"]["bdata"]), heat["z"]["dtype"])
    assert np.nanmax(cells) == allowed["tokens_per_s"].max() < refused["tokens_per_s"].max()
    report_text = codesign_report.build(
        found,
        DesignReportQuestion(
            codesign.QUANTITIES["tokens_per_s"], codesign.QUANTITIES["usd"], codesign.MIX, "middle", {}
        ),
        "",
        None,
    ).decode()
    assert "Smallest binding set" in report_text
    looked_at = run({"codesign_study": "own", "codesign_design": str(refused["design"].iloc[0])}, document_of(study))
    assert "refused by" in html(looked_at)


def test_a_damaged_folder_is_told_and_can_be_searched_again(place: Path) -> None:
    study = codesign.Study.from_document(SMALL)
    codesign.run(study, place / study.key, workers=1)
    part = next((place / study.key / "parts").iterdir())
    part.write_bytes(part.read_bytes().replace(b"shardscape crc32", b"shardscape crc33"))
    app = run({"codesign_study": "own"}, json.dumps(SMALL))
    assert "is damaged" in app.warning[0].value
    assert "6 of 6" in html(searched(app))


SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
ONE: dict[str, Any] = {
    **SMALL,
    "models": ["megatron-126M"],
    "systems": ["h100_80g_sxm"],
    "datatypes": ["bfloat16"],
    "cost_model": "calibrated",
    "objectives": ["tokens_per_s"],
    "constraints": [],
    "prune": True,
    "edits": [
        {"parameter": "hbm_capacity", "values": [10, 20, 40, 80]},
        {"parameter": "compute", "values": [500, 700, 900, 990]},
    ],
}


def test_a_study_is_kept_and_chosen_again() -> None:
    kept = user_files()
    study = codesign.Study.from_document(SMALL)
    app = run({"codesign_study": "own"}, json.dumps(SMALL))
    app.button(key="codesign_keep_now").click().run()
    (saved,) = kept.studies()
    assert (saved.title, saved.study.document) == ("Two prices of memory", study.document)
    name = app.session_state["_url"]["codesign_study"]
    assert name == f"kept-{saved.ident}"
    app = run({"codesign_study": name})
    assert "Two prices of memory" in html(app)
    (address,) = (each.value for each in app.code if "codesign_own" in each.value)
    assert dict(parse_qsl(urlsplit(address).query))["codesign_study"] == "own"  # whole: another server has it not
    kept.drop_study(saved.ident)
    assert not run({"codesign_study": name}).error


def test_a_study_of_one_objective_draws_the_best_and_what_was_skipped_with_its_error(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = codesign.Study.from_document({key: value for key, value in ONE.items() if key != "costs"})
    codesign.run(study, place / study.key, workers=1, task_seconds=ONE_POINT)
    found = codesign.results(place / study.key)
    skipped = found.skipped()
    assert 0 < len(skipped) < len(found.designs())
    app = run({"codesign_study": "own"}, document_of(study))
    assert not app.error
    (chart,) = plots(app)
    marks = {trace["name"]: trace for trace in chart.figure["data"]}
    assert len(marks["skipped, bound below the best"]["hovertext"]) == len(skipped)
    best = found.best()
    assert best is not None
    throughput = codesign.QUANTITIES["tokens_per_s"]
    told = error_told(found, int(best["design"]), throughput, codesign.MIX)
    assert re.fullmatch(r"\N{MINUS SIGN}[\d.]+ to \+[\d.]+\s%", told)
    assert told in html(app)
    assert "Cost model calibrated" in html(app)
    assert (
        told
        in codesign_report.build(
            found,
            DesignReportQuestion(throughput, None, codesign.MIX, "middle", {"compute": "Compute"}, "compute"),
            "",
            None,
        ).decode()
    )
    # A map of two choices says of cells that were skipped what bounds leave them, and they hold no more than that.
    (mapped,) = plots(
        run(
            {"codesign_study": "own", "codesign_picture": "map", "codesign_x": "compute", "codesign_y": "hbm_capacity"},
            document_of(study),
        )
    )
    heat, left = mapped.figure["data"]
    every = codesign.Study.from_document({**json.loads(document_of(study)), "prune": False})
    codesign.run(every, place / every.key, workers=1)
    designs = codesign.results(place / every.key).designs().to_dict("records")
    true = {(f"{row['compute']:g}", f"{row['hbm_capacity']:g}"): row["tokens_per_s"] for row in designs}
    assert 0 < len(left["text"]) <= len(skipped)
    for x, y, words in zip(left["x"], left["y"], left["hovertext"], strict=True):
        number = re.search(r"at most ([\d.,]+)(?:\s×\s10(.))?", words)
        assert number is not None
        bound = float(number[1].replace(",", "")) * 10 ** (SUPERSCRIPTS.index(number[2]) if number[2] else 0)
        assert not true[x, y] > bound * 1.001, "bounds hold, but for the digits that are shown"
    values = np.frombuffer(base64.b64decode(heat["z"]["bdata"]), heat["z"]["dtype"]).reshape(len(heat["y"]), -1)
    for (row, column), value in np.ndenumerate(values):
        assert np.isnan(value) or value == true[heat["x"][column], heat["y"][row]]
    (chart,) = plots(run({"codesign_study": "own", "codesign_kept": "hbm_capacity:20:40"}, document_of(study)))
    marks = {trace["name"]: trace for trace in chart.figure["data"]}
    assert "bdata" in marks["best found"]["marker"]["opacity"]
    assert len(chart.figure["layout"]["shapes"]) == 2
    # Where one more dollar goes: as the engine says of the study as it is asked.
    number = int(best["design"])
    worth = codesign.sensitivity(found, number)
    app = run({"codesign_study": "own", "codesign_worth": "on"}, document_of(study))
    assert all(job.wait(120) for job in server().board.jobs(server().design_sensitivity))
    table = next(each.value for each in app.run().dataframe if "Gain [%]" in each.value)
    assert table["Gain [%]"].tolist() == (100 * worth["gain"]).round(4).tolist()
    monkeypatch.setattr(view_of_worth, "SEARCHES", 1e9)
    app = run({"codesign_study": "own", "codesign_worth": "on"}, document_of(study))
    assert "Run shardscape codesign with --sensitivity" in app.info[0].value
    # What follows from inputs alone is not off, and every design of this study can be looked at.
    assert error_told(found, int(best["design"]), codesign.QUANTITIES["processors"], codesign.MIX) == ""
    looked_at = run({"codesign_study": "own", "codesign_design": str(skipped["design"].iloc[0])}, document_of(study))
    assert "bounds prove it is not best" in html(looked_at)
