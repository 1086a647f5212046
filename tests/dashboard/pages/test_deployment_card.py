"""The Launch card of the Serving page: the deployment shown, as every target writes it."""

from __future__ import annotations

import functools

from streamlit.testing.v1 import AppTest

from engine import launch, serving
from tests.dashboard.page_runs import page_alone

KEY = "serving_launch"
LINK = {
    "serving_model": "llama-3-8B",
    "serving_system": "h100_80g_sxm",
    "serving_procs": "2",
    "serving_prompt": "1000",
    "serving_output": "200",
}


@functools.cache
def recommended() -> dict[str, object]:
    limits = {"time_to_first_token": 1.0, "time_per_output_token": 0.05}
    found = serving.explore("llama-3-8B", "h100_80g_sxm", num_procs=2, prompt=1000, output=200, **limits)
    row = serving.recommend_deployment(found).row
    assert row is not None
    return dict(row)


def run() -> AppTest:
    app = page_alone("serving")
    app.session_state["_url"] = dict(LINK)
    return app.run()


def test_the_card_has_the_files_of_the_deployment_shown() -> None:
    app = run()
    assert not app.exception
    assert app.selectbox(key=f"{KEY}_target").options == list(launch.TARGETS.values())
    for target in launch.TARGETS:
        app.selectbox(key=f"{KEY}_target").set_value(target).run()
        engines = [target]
        if target not in launch.ENGINES:
            engines = list(launch.ENGINES)
            assert app.selectbox(key=f"{KEY}_engine").options == [each.title for each in launch.ENGINES.values()]
        for engine in engines:
            if target not in launch.ENGINES:
                app.selectbox(key=f"{KEY}_engine").set_value(engine).run()
            assert not app.exception
            made = launch.write_deployment(recommended(), "llama-3-8B", to=target, engine=engine)
            shown = [each.value.strip() for each in app.code]
            assert all(file.text.strip() in shown for file in made.files)
            told = " ".join(each.value for each in (*app.markdown, *app.caption, *app.info)).replace("\\", "")
            for sentence in (*made.not_expressible, *made.remarks):
                assert sentence.split(":")[0] in told
            assert made.version in told


def test_a_target_stays_chosen_on_the_next_run() -> None:
    app = run()
    app.selectbox(key=f"{KEY}_target").set_value("dynamo").run()
    app.run()
    assert app.selectbox(key=f"{KEY}_target").value == "dynamo"
    assert "DynamoGraphDeployment" in app.code[0].value
