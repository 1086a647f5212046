"""What a copy of the tree that has grown shows of it; run by itself, with the copy before everything else on the path.

The copy has a statistic, a field, an accelerator, a datatype, a page and a cost model more, see
`tests.properties.test_touch_counts`.
"""

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

import engine
import hardware
from dashboard.files import exports
from dashboard.link import scenario_parameters, vocabulary
from dashboard.pages.contract import NavigationGroup
from dashboard.pages.registry import page, sections
from dashboard.queries.explorations import choice_costs
from dashboard.queries.filters import Filter, derived_of, parse, text
from dashboard.queries.scenario_edits import altered, datatypes_of
from dashboard.widgets.tables import arranged
from dashboard.words.executions import choices, differences
from engine import launch
from engine.columns import applies, by_name, called, choice_label, choices_of, headline_of
from engine.exploration.proven_optimum import best_of
from engine.questions import answer
from engine.store import Store, StoreCondition

LIMITS: dict[str, Any] = {
    "swift_host": [True, False],
    "tensor_par": [1, 2],
    "pipeline_par": [1, 2],
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "activation_recompute": "none",
}
MACHINE = {"num_procs": 8, "max_batch_size": 8, "datatype": "bfloat16", "cost_model": "calibrated"}


def editor() -> None:
    """Draws the editor of limits."""
    from dashboard.link.shared import parse_shared
    from dashboard.shell.scenario import limits

    limits._dialog(parse_shared().scenario)


def check_datatype(wide: engine.Scenario) -> None:
    """Looks at the datatype in every door: scenario, table, link, slot of the page, JSON, store and launch."""
    scenario = altered(wide, datatype="float6")
    assert "float6" in datatypes_of(wide)
    assert choice_label("datatype", "float6") == "FP6"
    assert scenario_parameters.read_scenario(scenario_parameters.parameters_of(scenario)).scenario == scenario
    assert engine.Scenario.from_document(scenario.to_document()) == scenario
    narrow = altered(wide, datatype="float8")
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.duckdb") as store:
        found, beside = (engine.explore_scenario(each, store=store) for each in (scenario, narrow))
        assert found.best is not None
        assert beside.best is not None
        assert found.best["datatype"] == "float6"
        # The rate of FP8 with the traffic of 6.5 bits.
        assert found.best["total_time"] != beside.best["total_time"]
        assert len({scenario.key, narrow.key}) == 2
    single = scenario.evaluate(scenario.space.table([found.best["id"]])).iloc[0]
    assert abs(single["total_time"] / found.best["total_time"] - 1) < 1e-9
    with pytest.raises(engine.SpaceError, match=r"has no rates for float6; it has float4"):
        _ = altered(scenario, system=hardware.load("b200_180g_sxm")).space
    asked = {"model": "llama-3-8B", "system": "grown_80g", "num_procs": 8, "max_batch_size": 8, "datatype": "float6"}
    assert "float6" in str(answer("best", {"scenario": asked}))
    execution = dict(found.best)
    assert "te_mxfp6" in launch.write(execution, "llama-3-8B", framework="maxtext").text
    with pytest.raises(launch.LaunchError, match=r"Megatron does not train in float6; it has .*float8_block"):
        launch.write(execution, "llama-3-8B", framework="megatron")


def main(copy: Path) -> None:
    """Looks at everything that has grown; an assertion says what does not show."""
    for module in (engine, exports):
        assert Path(str(module.__file__)).is_relative_to(copy), module

    # The accelerator is in the library, and executions on it run.
    assert "grown_80g" in hardware.names()
    scenario = engine.Scenario.of("llama-3-8B", "grown_80g", limits=LIMITS, **MACHINE)
    assert scenario.system.matrix["bfloat16"].tflops == 1234

    check_datatype(scenario)

    # Exploration and store: the field is enumerated and decides figures, the statistic is stored.
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.duckdb") as store:
        found = engine.explore_scenario(scenario, store=store)
        assert found.feasible
        slow = found.rows.top(1, "sample_rate", where=[StoreCondition("swift_host", "=", False)]).to_pylist()[0]
        best = found.best
        assert best is not None
        assert best["swift_host"]
        assert best["sample_rate"] > slow["sample_rate"]
        optimum = best_of(scenario)
        assert optimum["sample_rate"] == best["sample_rate"]
        again = scenario.evaluate(scenario.space.table([best["id"]])).iloc[0]
        span = found.rows.value_range("gather_link_time")
        assert span is not None
        assert span[1] > 0
        gathering = found.rows.top(1, "gather_link_time").to_pylist()[0]
        single = scenario.evaluate(scenario.space.table([gathering["id"]])).iloc[0]
        for name in ("sample_rate", "gather_link_time"):
            assert abs(single[name] - gathering[name]) <= 1e-9 * gathering[name]
        assert abs(again["sample_rate"] - best["sample_rate"]) <= 1e-9 * best["sample_rate"]

        # Export: both are columns with their label.
        file = io.BytesIO()
        exports.of_rows(found, "parquet", names=["id", "swift_host", "gather_link_time"])(file)
        schema = pq.read_schema(file)
        assert schema.field("gather_link_time").metadata[b"label"] == b"Weight gathers on the links"
        assert "swift_host" in schema.names

        # Labels: chips, differences, tables, costs of choices, filters in a link.
        assert called("swift_host") == "Swift host (swift_host)"
        assert ("swift host", "on") in choices(best, scenario.system)
        assert ("Swift host", "on", "off") in differences(best, {**best, "swift_host": False})
        shown, settings = arranged(found.top(3)[["id", "swift_host", "gather_link_time"]])
        assert settings["swift_host"]["label"] == "swift"
        assert next(iter(shown["swift_host"])) == "on"
        metric = derived_of(scenario)["mfu"]
        assert set(choice_costs(found, metric).query("field == 'swift_host'")["choice"]) == {True, False}
        named = text([Filter(by_name("swift_host"), (True,)), Filter(by_name("gather_link_time"), low=0.0)])
        assert [one.column.name for one in parse(named, {})[0]] == ["swift_host", "gather_link_time"]

    # Where it applies, what cost models have.
    assert applies("swift_host", best)
    assert "swift_host" in [column.name for column in choices_of("calibrated")]
    assert "swift_host" not in [column.name for column in choices_of("calculon")]
    assert "gather_link_time" in [column.name for column in headline_of("calibrated")]

    # The page stands in its section of the navigation, behind those with a place, and its parameter has a word.
    assert [each.name for each in sections()[NavigationGroup.DECIDE]][-1] == "grown"
    assert page("grown").view().parse() == "It has grown."
    assert vocabulary.WORDS["grown_by"] == "growth"

    # The cost model explores, finds its optimum and can be chosen in a link.
    assert list(engine.COST_MODELS)[-1] == "toy"
    by_toy = MACHINE | {"cost_model": "toy"}
    other = engine.Scenario.of("gpt3-6.7B", "grown_80g", limits={"tensor_par": [1, 2]}, **by_toy)
    explored = engine.explore_scenario(other)
    assert explored.best is not None
    assert best_of(other)["sample_rate"] == explored.best["sample_rate"]
    assert scenario_parameters.read_scenario(scenario_parameters.parameters_of(other)).scenario == other

    # Link and editor.
    parameters = scenario_parameters.parameters_of(scenario)
    assert scenario_parameters.read_scenario(parameters).scenario.limits["swift_host"] == [False, True]
    dialog = AppTest.from_function(editor, default_timeout=60)
    dialog.session_state["_url"] = parameters
    dialog.run()
    assert not dialog.exception, [error.value for error in dialog.exception]
    field = next(group for group in dialog.get("button_group") if group.key == "limit_swift_host")
    assert set(field.value) == {True, False}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
