"""The choice of cost model and calibration: in the sentence, in links, in documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.link import scenario_parameters
from dashboard.link.catalogue import usable_models
from dashboard.link.examples import EXAMPLES
from dashboard.queries import scenario_edits
from dashboard.queries.scenario_edits import altered
from engine import Scenario
from engine.cost_models.calibrated import library_calibration
from engine.cost_models.calibrated.space import COVERED
from hardware import Calibration
from tests.dashboard.server import own_server

SIZES: dict[str, Any] = {"num_procs": 64, "max_batch_size": 128}


def own(system: str = "h100_80g_sxm") -> Calibration:
    """The library's calibration with one value of one's own."""
    base = library_calibration()
    document = base.model_dump()
    document |= {"name": "mine", "system": system, "derived_from": base.name}
    document["parameters"]["straggler"]["value"] = 0.02
    return Calibration.model_validate(document)


def scenario(model: str = "llama-3.1-70B", system: str = "h100_80g_sxm", **more: Any) -> Scenario:
    return Scenario.of(model, system, **{**SIZES, "datatype": "bfloat16", **more})


@pytest.mark.parametrize(
    "made",
    [
        scenario(),
        scenario(limits={"context_par": [1, 2], "zero_stage": [1], "launch": ["graphs"]}),
        scenario("deepseek-v3", datatype="float8"),
        scenario("gpt3-13B", "h100_80g_nvl8", datatype="float16", cost_model="calibrated"),
        scenario("gpt3-13B", "h100_80g_nvl8", datatype="float16"),
        scenario("gpt3-13B", cost_model="calculon"),
        scenario(calibration=library_calibration()),
        scenario(calibration=own()),
    ],
    ids=["plain", "limits", "experts", "calibrated", "calculon", "exact", "library", "own"],
)
def test_links_and_documents_keep_cost_model_and_calibration(made: Scenario) -> None:
    parameters = scenario_parameters.parameters_of(made)
    reading = scenario_parameters.read_scenario(parameters)
    assert not reading.problems
    assert reading.scenario == made
    assert (reading.scenario.key, reading.scenario.physics) == (made.key, made.physics)
    assert Scenario.from_document(made.to_document()) == made
    assert sum(len(value) for value in parameters.values()) < 2_000


def test_a_link_without_cost_model_takes_the_systems() -> None:
    assert scenario_parameters.read_scenario({"system": "h100_80g_sxm"}).scenario.cost_model == "calibrated"
    assert scenario_parameters.read_scenario({"system": "h100_80g_nvl8"}).scenario.cost_model == "calculon"
    assert scenario_parameters.read_scenario({"model": "deepseek-v3"}).scenario.cost_model == "calibrated"


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"cost": "oracle"}, "cost model is oracle; it must be calibrated or calculon"),
        ({"cost": "calculon", "calibration": "global"}, "takes no calibration"),
        ({"calibration": "nobody"}, "nobody"),
        ({"calibration": "../../secret.json"}, "is not a name"),
        ({"model": "deepseek-v3", "cost": "calculon"}, "DeepSeek-V3 671B has multi-head latent attention and a"),
        ({"limits": "context_par:2", "cost": "calculon"}, "context_par"),
    ],
)
def test_a_link_that_cannot_be_meant_is_told(link: dict[str, str], said: str) -> None:
    reading = scenario_parameters.read_scenario(link)
    assert len(reading.problems) == 1
    assert said in reading.problems[0]
    assert reading.scenario.space.total > 0
    if "model" in link:  # the rest of the link is kept
        assert reading.scenario.model.name == "deepseek-v3"


def test_what_goes_along_when_something_changes() -> None:
    exact = scenario("gpt3-13B", "h100_80g_nvl8", datatype="float16", limits={"tensor_par_net": [0], "tensor_par": [4]})
    assert altered(exact, num_procs=128).cost_model == "calculon"
    moved = altered(exact, system=scenario().system)
    assert moved.cost_model == "calibrated"
    assert altered(exact, model=scenario("deepseek-v3").model).cost_model == "calibrated"
    wide = scenario(limits={"context_par": [2], "tensor_par": [4]})
    assert set(altered(wide, cost_model="calculon").limits) == {"tensor_par"}
    fitted = scenario(calibration=own())
    assert altered(fitted, num_procs=32).calibration == own().model_copy(update={"name": "mine"})
    assert altered(fitted, system=exact.system).calibration is None
    assert altered(fitted, cost_model="calculon").calibration is None
    assert altered(fitted, calibration=None).calibration is None


def test_switching_finds_a_datatype_that_the_cost_model_takes() -> None:
    made = scenario("gpt3-13B", datatype="float32", cost_model="calculon")
    changed = scenario_edits.switch_cost_model(made, "calibrated")
    assert changed.cost_model == "calibrated"
    assert changed.datatype in scenario_edits.datatypes_of(changed)
    assert "float32" not in scenario_edits.datatypes_of(changed)
    assert changed.space.total > 0


def test_models_that_calculon_cannot_describe_can_be_chosen() -> None:
    assert {"deepseek-v3", "gpt3-175B"} <= set(usable_models())


def shown(made: Scenario) -> AppTest:
    """The sentence of a scenario."""

    def script() -> None:
        from dashboard.link.figures import parse_figures
        from dashboard.link.shared import parse_shared
        from dashboard.shell.scenario import sentence

        sentence.show(parse_shared().scenario, parse_figures())

    app = AppTest.from_function(script, default_timeout=60)
    app.session_state["_url"] = scenario_parameters.parameters_of(made)
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_the_sentence_names_the_cost_model_and_changes_it() -> None:
    app = shown(scenario("gpt3-13B", cost_model="calculon"))
    assert app.radio(key="sentence_cost").value == "calculon"
    app.radio(key="sentence_cost").set_value("calibrated").run()
    assert not app.exception
    assert scenario_parameters.read_scenario(app.session_state["_url"]).scenario.cost_model == "calibrated"
    assert "sentence_calibration" in {box.key for box in app.selectbox}


def test_the_sentence_takes_experts_and_says_that_the_cost_model_follows() -> None:
    app = shown(scenario("gpt3-13B", cost_model="calculon"))
    app.selectbox(key="sentence_model").set_value("deepseek-v3").run()
    assert not app.exception
    now = scenario_parameters.read_scenario(app.session_state["_url"]).scenario
    assert (now.model.name, now.cost_model) == ("deepseek-v3", "calibrated")
    assert any("Cost model" in toast.value for toast in app.toast)


def test_a_kept_calibration_can_be_set(tmp_path: Path) -> None:
    with own_server(tmp_path) as place:
        for name, calibration in {"mine": own(), "elsewhere": own("a100_80g_sxm")}.items():
            place.files.keep_calibration(calibration.model_copy(update={"name": name}))
        app = shown(scenario())
        box = app.selectbox(key="sentence_calibration")
        assert not any("elsewhere" in option for option in box.options)
        box.set_value("mine").run()
    assert not app.exception
    assert scenario_parameters.read_scenario(app.session_state["_url"]).scenario.calibration == own().model_copy(
        update={"name": "mine"}
    )


def test_the_example_of_the_reference_says_what_it_is_and_offers_the_other() -> None:
    examples = {one.name: scenario_parameters.read_scenario(one.parameters).scenario for one in EXAMPLES}
    assert "cost_switch" not in {button.key for button in shown(examples["dense"]).button}
    app = shown(examples["codesign"])
    assert any("Calculon 0.1.0" in caption.value for caption in app.caption)
    app.button(key="cost_switch").click().run()
    assert not app.exception
    now = scenario_parameters.read_scenario(app.session_state["_url"]).scenario
    assert (now.system.name, now.cost_model) == ("h100_80g_sxm", "calibrated")
    assert "cost_switch" not in {button.key for button in app.button}


def limits_dialog(made: Scenario) -> AppTest:
    """The editor of limits of a scenario."""

    def script() -> None:
        from dashboard.link.shared import parse_shared
        from dashboard.shell.scenario import limits as limits_editor

        limits_editor._dialog(parse_shared().scenario)

    app = AppTest.from_function(script, default_timeout=60)
    app.session_state["_url"] = scenario_parameters.parameters_of(made)
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_limits_are_offered_for_what_the_cost_model_reads() -> None:
    app = limits_dialog(scenario("deepseek-v3", datatype="float8"))
    keys = {group.key for group in app.get("button_group")} | {box.key for box in app.multiselect}
    assert {"limit_context_par", "limit_expert_par", "limit_zero_stage", "limit_launch"} <= keys
    assert not {"limit_tensor_par_net", "limit_seq_par_ag_redo", "limit_training"} & keys
    helps = {group.key: group.help for group in app.get("button_group")}
    assert COVERED["expert_par"] in helps["limit_expert_par"]
    dense = limits_dialog(scenario())
    assert "limit_expert_par" not in {group.key for group in dense.get("button_group")}
    exact = limits_dialog(scenario("gpt3-13B", "h100_80g_nvl8", datatype="float16"))
    keys = {group.key for group in exact.get("button_group")}
    assert "limit_tensor_par_net" in keys
    assert "limit_context_par" not in keys


def test_a_limit_on_an_extension_narrows_the_scenario() -> None:
    made = scenario("deepseek-v3", datatype="float8")
    app = limits_dialog(made)
    group = next(group for group in app.get("button_group") if group.key == "limit_expert_par")
    group.set_value([8]).run()
    app.button(key="limits_apply").click().run()
    assert not app.exception
    now = scenario_parameters.read_scenario(app.session_state["_url"]).scenario
    assert now.limits == {"expert_par": [8]}
    assert 0 < now.space.total < made.space.total
