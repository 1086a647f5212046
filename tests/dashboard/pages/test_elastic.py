"""The Elastic page: one job, library models, several jobs, workloads and measurements, and links that cannot be."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import hardware
import models
from dashboard.files.own_cards import OwnCard, document_of, own_card_of, packed_card, unpacked_card
from dashboard.link.document_validation import Refused
from dashboard.link.named_things import NAMES, joined, quoted, separate, unquoted
from dashboard.link.own_studies import packed_study, unpacked_study
from dashboard.link.scenario_parameters import parameters_of, read_scenario
from dashboard.link.text_encoding import folded
from dashboard.link.user_files import UserFiles
from dashboard.pages.elastic.cards import _parse_allowed_plans
from dashboard.pages.elastic.tables import _table_csv
from dashboard.words.numbers import plain
from engine import Scenario, codesign
from engine.planners.contract import PlanError
from engine.planners.elastic import curve, load_card, plans_table
from engine.planners.elastic.cards import card_names, changed_card, load_card_document, to_document
from engine.planners.elastic.measured.library import measurement_names, measurements
from engine.planners.elastic.measured.table import read_measurements
from engine.planners.elastic.plan_names import DATA_PARALLEL, plan_title
from engine.reproductions.rubick.losses import losses
from tests.dashboard.page_runs import html, page_alone, plots
from tests.dashboard.server import own_server


def run(link: Mapping[str, str], **kept: str) -> AppTest:
    app = page_alone("elastic")
    app.session_state["_url"] = dict(link)
    for name, value in kept.items():
        app.session_state[name] = value
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def table(app: AppTest, column: str) -> pd.DataFrame:
    """The first table with a column."""
    return next(each.value for each in app.dataframe if column in each.value)


def said(app: AppTest) -> str:
    return html(app) + " ".join(each.value for each in app.markdown).replace("\\", "")


def test_one_job_through_the_phases_of_figure_7() -> None:
    app = run({})
    for mean in ("5.266", "4.360", "4.689", "4.684", "0.4381"):
        assert mean in html(app)
    assert "TP 4 × PP 2 × DP 4" in table(app, "plan")["plan"].tolist()
    # The curve asks for the same nodes and threads: predictions, and what was measured in phases that lie on it.
    assert "Measured: 13.73\N{NO-BREAK SPACE}samples/s at 32" in said(app)
    assert table(app, "winner").set_index("GPUs").loc[32, "samples/s"] == pytest.approx(8.095, abs=1e-3)
    parts = table(app, "why not").iloc[0]
    assert parts["plan"] == "TP 4 × PP 2 × DP 4"
    told = [name for name in parts.index if name.endswith(", ms") and name != "iteration, ms"]
    assert sum(float(parts[name]) for name in told) == pytest.approx(parts["iteration, ms"], abs=0.05)
    assert table(run({"elastic_every": "on"}), "why not")["plan"].iloc[0] == "TP 2 × PP 8 × DP 2"
    app = run({"elastic_phases": "30@8888x2, 5@0x1, 30@4x2", "elastic_pause": "260", "elastic_variant": "physical"})
    assert "3 phases" in html(app)
    app = run({"elastic_phases": "30@44x2b1", "elastic_variant": "physical", "elastic_basis": "predicted"})
    slow = plans_table("llama7_bsz16", placement="44", cpu_threads=2, bandwidth=1, variant="physical")
    assert f"{plain(float(slow['throughput'].iloc[0]), 4)} samples/s" in html(app)
    app = run({"elastic_rule": "n/g, g, 1"})
    assert "n/g, g, 1" in html(app)
    assert "three" in run({"elastic_rule": "n, g"}).warning[0].value


def test_sensitivities_of_several_cards_lie_over_each_other() -> None:
    app = run({"elastic_card": "roberta", "elastic_beside": "vit~gpt2~nonesuch"})
    expected = {name: curve(name) for name in ("roberta", "vit", "gpt2")}
    grown = [
        f"{plain(float(each['stored_best'].max() / each['stored_best'].iloc[0]), 3)} times from 1 to 64"
        for each in expected.values()
    ]
    assert [said(app).count(words) for words in grown] == [1, 1, 1]
    assert app.multiselect[0].value == ["vit", "gpt2"]


def test_figure_9_and_losses_of_one_s_own() -> None:
    app = run({"elastic_show": "losses"})
    shown = table(app, "mean difference").set_index("run")["mean difference"]
    for name, mean in {"241": 0.042, "811": 0.047, "421": 0.099, "181_seed": 0.087}.items():
        assert shown[name] == pytest.approx(mean, abs=5e-4)
    app = run({"elastic_show": "losses", "elastic_against": "241", "elastic_loss_shown": "losses"})
    assert "181" in table(app, "mean difference")["run"].tolist()
    assert "Upload losses" in run({"elastic_show": "losses", "elastic_losses": "own"}).info[0].value


def test_a_library_model_has_a_curve_phases_and_an_answer_to_lost_nodes() -> None:
    app = run({"elastic_show": "model", "elastic_gpus": "16", "elastic_steps": "60@16, 30@8"})
    told = said(app)
    assert "Use spare nodes" in told
    assert "2 phases" in told
    sizes = table(app, "in at least, s")
    assert sizes["GPUs"].tolist() == [1, 2, 4, 8, 16]
    assert sizes["a GPU receives, GiB"].notna().sum() == 4
    # Each size has the interval of its kind of run, or what was never measured of its plan.
    held = re.compile(r"\N{MINUS SIGN}[\d.]+ to \+[\d.]+\s%|never measured: .+")
    assert all(held.fullmatch(each) for each in sizes.loc[sizes["samples/s"].notna(), "error"])
    assert "measured runs of dense models on Hopper" in html(app)
    assert "one node" in said(run({"elastic_show": "model", "elastic_gpus": "8"}))


def test_several_jobs_are_split_three_ways() -> None:
    app = run({"elastic_show": "several"})
    assert "0.786" in html(app)
    assert "1.43" in html(app)
    assert len(app.dataframe[0].value) == 6
    assert "Throughputs are measured." in html(app)
    assert re.search(
        r"Error against \d+ measured runs: [\d.]+\s% on average",
        html(run({"elastic_show": "several", "elastic_basis": "predicted"})),
    )
    app = run(
        {
            "elastic_show": "several",
            "elastic_of": "models",
            "elastic_shared": "8",
            "elastic_jobs": "llama-3-8B*64, llama-3-8B*32=1",
        }
    )
    assert app.dataframe[0].value["job"].nunique() == 2
    assert "measured runs of dense models on Hopper" in html(app)


def test_a_workload_runs_under_all_policies() -> None:
    app = run({"elastic_show": "workload", "elastic_workload": "naive", "elastic_policy": "published"})
    table = app.dataframe[0].value
    assert len(table) == 4
    assert table["mean completion, s"].iloc[0] == pytest.approx(895.6, abs=0.1)
    assert len(app.dataframe[1].value) == 10
    app = run({"elastic_show": "workload", "elastic_workload": "today", "elastic_nodes": "4"})
    assert len(app.dataframe[1].value) == 16


def test_both_variants_stand_beside_what_was_measured() -> None:
    app = run({"elastic_show": "accuracy", "elastic_card": "llama7", "elastic_runs": "3d"})
    told = said(app)
    assert "Calibrated: mean error" in told
    assert set(table(app, "runs")["model"]) == {"As published", "Calibrated"}
    assert "names no model of the library" in said(run({"elastic_show": "accuracy", "elastic_card": "roberta"}))


@pytest.fixture
def kept_files(tmp_path: Path) -> Iterator[UserFiles]:
    with own_server(tmp_path) as place:
        yield place.files


TRACE = "exec_plan,placement,iter_time\n244,8888,1.2\n441,4444,0\n"


def own_card(name: str = "mine") -> OwnCard:
    return own_card_of({**to_document(load_card("llama7_bsz16")), "name": name}, "card")


def test_a_card_of_one_s_own_is_planned_with_its_measurements(kept_files: UserFiles) -> None:
    link = {"elastic_card": "own", "elastic_own": packed_card(OwnCard(own_card().card, TRACE)) or ""}
    app = run(link)
    assert "Throughput while resources change" in html(app)
    app.button(key="elastic_card_keep").click()
    app.run()
    assert {name: own["measurements"] for name, own in kept_files.cards().items()} == {"mine": TRACE}
    assert app.session_state["_url"] == {"elastic_card": "mine"}
    for kept in (link, {"elastic_card": "mine"}):  # in the link, and on the server
        app = run({**kept, "elastic_show": "accuracy"})
        assert table(app, "measured, ms")["measured, ms"].tolist() == [1200.0, 1200.0]
    jobs = {"elastic_show": "several", "elastic_jobs": "mine, own", "elastic_own": link["elastic_own"]}
    assert set(run({**jobs, "elastic_basis": "predicted"}).dataframe[0].value["job"]) == {"mine", "mine (2)"}
    app = run({"elastic_card": "mine"})
    app.button(key="elastic_card_drop").click()
    app.run()
    assert kept_files.cards() == {}
    assert "Upload a card" in run({"elastic_card": "own"}).info[0].value


def test_plans_measurements_and_limits_of_a_card_can_be_changed(kept_files: UserFiles) -> None:
    card = load_card("llama7_bsz16")
    changed = changed_card(card, {"atom_batches.dp.other": 3, "allowed_plans": {"244": ["8888"]}})
    app = run({})
    rows = {str(row["field"]): row["value"] for row in table(app, "field").to_dict("records")}
    assert rows["atom_batches.zero_dp.recompute"] == card.atom_batches.zero_dp.recompute
    assert dict(table(app, "allowed plan").to_numpy()) == {
        plan: " ".join(each) for plan, each in card.allowed_plans.items()
    }
    assert "iteration_s" in table(app, "exec_plan")

    def keep(times: pd.DataFrame | None) -> dict[str, str]:
        def page() -> None:
            import streamlit as st

            from dashboard.link import state
            from dashboard.pages.elastic.cards import keep_card

            state.begin("elastic")
            keep_card(st.session_state["card"], "llama7_bsz16", st.session_state["times"])

        app = AppTest.from_function(page)
        app.session_state["card"], app.session_state["times"] = changed, times
        app.run()
        assert not app.exception, app.exception
        return dict(app.session_state["_url"])

    own = unpacked_card(keep(None)["elastic_own"])
    assert (own.card.allowed_plans, own.card.atom_batches.dp.other) == ({"244": ("8888",)}, 3)
    assert own.measurements is not None
    times = pd.DataFrame({"exec_plan": ["244", None], "placement": ["8888", None], "iteration_s": ["1.5", None]})
    assert (unpacked_card(keep(times)["elastic_own"]).measurements or "").split() == [
        "exec_plan,placement,iteration_s",
        "244,8888,1.5",
    ]


def test_tables_of_one_s_own_travel_in_the_link() -> None:
    runs = folded("minibatch,loss_11,loss_22\n1,2.0,2.5\n2,1.0,1.25\n")
    app = run({"elastic_show": "losses", "elastic_losses": "own", "elastic_own_losses": runs})
    assert table(app, "mean difference")["mean difference"].tolist() == [pytest.approx(0.375)]
    jobs = folded("name,submission_time,application,num_gpus,exec_plan,steps\nmine,0,bert,2,DP+ga,100\n")
    app = run({"elastic_show": "workload", "elastic_workload": "own", "elastic_own_workload": jobs})
    assert table(app, "job")["job"].tolist() == ["mine"]
    # A run that is called as the column of minibatches would leave none to choose.
    taken = folded("minibatch,loss_minibatch\n1,2.0\n")
    (told,) = run({"elastic_show": "losses", "elastic_losses": "own", "elastic_own_losses": taken}).error
    assert "names no run" in told.value
    for name, subject in {"losses": "losses", "workload": "workload", "profile": "fit"}.items():
        for wrong in ("1abc", folded("/etc/passwd"))[: 1 + (name == "losses")]:
            link = {"elastic_show": subject, f"elastic_{name}": "own", f"elastic_own_{name}": wrong}
            assert len(run(link).error) == 1


def test_cards_in_links_and_files_are_checked(kept_files: UserFiles) -> None:
    own = OwnCard(own_card().card, TRACE)
    text = packed_card(own)
    assert text is not None
    assert unpacked_card(text) == own
    assert own_card_of(document_of(own), "file") == own
    assert own_card_of(to_document(load_card("vit")), "file").name == "my vit"
    with pytest.raises(Refused, match="library has a model card"):
        kept_files.keep_card("vit", document_of(OwnCard(load_card("vit"))), card_names())
    random = "".join(f"24{each % 9 + 1},8888,{each * 0.37:.6f}\n" for each in range(1, 4000))
    assert packed_card(OwnCard(own.card, "exec_plan,placement,iter_time\n" + random)) is None
    for document, words in (
        ({**document_of(own), "more": 1}, "no field 'more'"),
        ({**document_of(own), "measurements": 5}, "must be the text of a CSV"),
        ({**document_of(own), "measurements": "a,b\n1,2"}, "exec_plan"),
        ({**to_document(own.card), "system": "../../etc/passwd"}, "none of the library"),
        ({**to_document(own.card), "global_batch": -1}, "global_batch"),
    ):
        with pytest.raises(Refused, match=words):
            own_card_of(document, "file")
    for damaged in (text[:-9], "1abc", "9" + text[1:]):
        app = run({"elastic_card": "own", "elastic_own": damaged})
        assert "link" in app.error[0].value
    assert run({"elastic_card": "own", "elastic_own": "<script>"}).info


def test_a_fit_says_what_speaks_against_it_and_becomes_a_card() -> None:
    app = run({"elastic_show": "fit", "elastic_profile": "vit", "elastic_onto": "vit"})
    assert "At a bound: k_opt" in said(app)
    assert "4.02 %" in said(app)  # table 2
    assert table(app, "parameter")["parameter"].tolist()[0] == "k_bwd"
    next(each for each in app.button if each.label == "Use as my card").click()
    app.run()
    assert unpacked_card(app.session_state["_url"]["elastic_own"]).name == "my vit"
    assert "Upload a profile" in run({"elastic_show": "fit", "elastic_profile": "own"}).info[0].value


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({"elastic_phases": "30@8888"}, "must be minutes"),
        ({"elastic_phases": "0@8x2"}, "above 0"),
        ({"elastic_show": "model", "elastic_steps": "60@99999"}, "such as 60@56"),
        ({"elastic_show": "model", "elastic_steps": ",".join(["1@8"] * 60)}, "at most 24"),
        ({"elastic_show": "several", "elastic_jobs": "nonesuch"}, "no card"),
        ({"elastic_show": "several", "elastic_jobs": "t5=99999"}, "keeps the guarantees"),
        ({"elastic_show": "several", "elastic_jobs": ",".join(["t5"] * 40)}, "1 to 8"),
        ({"elastic_show": "several", "elastic_of": "models", "elastic_jobs": "etc.passwd*8"}, "no model"),
        ({"elastic_show": "several", "elastic_of": "models", "elastic_jobs": "llama-3-8B"}, "no batch"),
        ({"elastic_show": "workload", "elastic_workload": "naive", "elastic_nodes": "1"}, "Nothing runs any more"),
    ],
)
def test_a_link_that_cannot_be_is_one_sentence(link: dict[str, str], words: str) -> None:
    app = run(link)
    assert len(app.error) == 1
    assert words in app.error[0].value.replace("\\", "").replace("\u2060", "")


def test_nonsense_breaks_nothing() -> None:
    """Every value is given to every parameter, and every subject shown with each of the values among its parameters."""
    values = ("<script>alert(1)</script>", "99999999999999999999", "-1", "é" * 500, "../../etc")
    names = (
        "card",
        "phases",
        "pause",
        "variant",
        "basis",
        "over",
        "phase",
        "jobs",
        "shared",
        "curve",
        "workload",
        "nodes",
        "node",
        "stop",
        "policy",
        "runs",
        "of",
        "own",
        "beside",
        "every",
        "losses",
        "against",
        "loss_shown",
    )
    for turn, subject in enumerate(("job", "several", "accuracy", "losses", values[0])):
        link = {f"elastic_{name}": values[(number + turn) % 5] for number, name in enumerate(names)}
        run({**link, "elastic_show": subject})


def test_files_of_a_plan_come_back() -> None:
    for name in card_names():
        card = load_card(name)
        assert load_card_document(json.loads(json.dumps(to_document(card)))) == card
    for name in measurement_names():
        written = measurements(name).table
        again = read_measurements(written.to_csv(index=False)).table
        columns = ["exec_plan", "placement", "iteration_s"]
        pd.testing.assert_frame_equal(again[columns], written[columns].reset_index(drop=True))
    whole = measurements(measurement_names()[0]).table
    read = pd.read_csv(io.StringIO(_table_csv(whole)))
    assert read["iteration_s"].tolist() == pytest.approx(whole["iteration_s"].tolist(), rel=0, nan_ok=True)


def test_rows_that_are_added_and_left_empty_are_no_plans() -> None:
    rows = pd.DataFrame({"allowed plan": ["DP", None, "241"], "placements": ["4 8", None, None]}, dtype=str)
    assert _parse_allowed_plans(rows) == {"DP": ["4", "8"], "241": []}


@pytest.mark.parametrize("text", ["a" * 50_000, "minibatch,loss_" + "b" * 50_000])
def test_columns_with_names_of_any_length_are_refused_in_a_sentence(text: str) -> None:
    for read in (losses, read_measurements):
        with pytest.raises(PlanError) as told:
            read(f"{text}\n1,x\n")
        assert len(str(told.value)) < 300


def test_a_plan_is_spelt_alike_wherever_it_is_read() -> None:
    for link in ({"elastic_rule": "zero-offload+gc"}, {"elastic_show": "several"}, {"elastic_show": "accuracy"}):
        app = run(link)
        tables = [each.value for each in app.dataframe if not {"allowed plan", "exec_plan"} & set(each.value)]
        read = [said(app), *(each.spec for each in plots(app)), *(each.to_csv() for each in tables)]
        assert not [each for text in read for each in re.findall(r"zero-(?:dp|offload)\+\w+|\bdp\+g\w", text)]
    assert {each.title for each in DATA_PARALLEL} == {plan_title(each.text) for each in DATA_PARALLEL}
    assert "ZeRO-Offload+GC" in {each.title for each in DATA_PARALLEL}


SIGNS = 'a~b <c>, "d"*=1 é%7E'
"""A name with every sign that separates or escapes in a link or a list."""


def test_any_name_that_something_is_kept_under_can_be_linked_and_listed(kept_files: UserFiles) -> None:
    for names in ([SIGNS], [SIGNS, "t5", "~", "%", '"', "a, b"]):
        assert NAMES.fullmatch(joined(names))
        assert separate(joined(names)) == names
        assert [unquoted(quoted(name)) for name in names] == names
    kept_files.keep_card(SIGNS, document_of(own_card(SIGNS)), card_names())
    kept_files.keep_model(models.load("llama-3-8B").model_copy(update={"name": SIGNS, "title": SIGNS}))
    kept_files.keep_system(hardware.load("h100_80g_sxm").model_copy(update={"name": SIGNS, "title": SIGNS}))
    kept_files.keep_calibration(hardware.load_calibration("global").model_copy(update={"name": SIGNS}))
    app = run({"elastic_card": SIGNS, "elastic_beside": joined([SIGNS])})
    assert any("elastic_overlaid" in each.id for each in plots(app))
    app.multiselect[0].set_value([SIGNS, "t5"])
    app.run()
    assert separate(app.session_state["_url"]["elastic_beside"]) == [SIGNS, "t5"]
    jobs = {"elastic_show": "several", "elastic_jobs": f"{quoted(SIGNS)}=0, t5", "elastic_basis": "predicted"}
    assert set(run(jobs).dataframe[0].value["job"]) == {SIGNS, "t5"}
    serving = page_alone("serving")
    serving.session_state["_url"] = {"serving_model": SIGNS, "serving_system": SIGNS}
    serving.run()
    assert not serving.exception
    assert [serving.selectbox(key=f"_serving_{which}").value for which in ("model", "system")] == [SIGNS, SIGNS]
    (calibration,) = kept_files.calibrations().values()
    scenario = Scenario.of(
        *(next(iter(each.values())) for each in (kept_files.models(), kept_files.systems())),
        num_procs=8,
        max_batch_size=8,
        datatype="bfloat16",
        calibration=calibration,
    )
    assert read_scenario(parameters_of(scenario)).scenario == scenario
    study = codesign.Study.from_document(
        {
            "format": codesign.FORMAT,
            "name": SIGNS,
            "models": [{"model": models.to_document(scenario.model)}],
            "systems": [hardware.to_document(scenario.system)],
            "sizes": [8],
            "datatypes": ["bfloat16"],
            "batches": [8],
            "costs": {"preset": "h100_2024"},
        }
    )
    ident = kept_files.keep_study(SIGNS, study)
    assert kept_files.study(ident).title == SIGNS
    assert unpacked_study(packed_study(study) or "").key == study.key
