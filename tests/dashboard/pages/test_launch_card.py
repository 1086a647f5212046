"""The Launch card: whatever execution a page shows, as a configuration to start it with, and what that cannot say."""

from __future__ import annotations

from dashboard.queries.tie_breaking import plainest
from engine import launch
from tests.dashboard.page_runs import again, exploration, run

KEY = "execution_launch"


def test_the_card_has_the_configuration_of_the_execution_shown() -> None:
    found = exploration()
    app = run("execution", found)
    assert not app.exception
    first = found.reductions.best()
    assert first is not None
    shown_first = plainest(found, found.key, first[0], "sample_rate").id
    (best,) = found.evaluate_ids([shown_first]).to_dict("records")
    assert app.selectbox(key=f"{KEY}_framework").options == [each.title for each in launch.FRAMEWORKS.values()]
    for name in launch.FRAMEWORKS:
        app.selectbox(key=f"{KEY}_framework").set_value(name)
        app = again(app, found)
        told = " ".join(each.value for each in (*app.markdown, *app.caption, *app.info)).replace("\\", "")
        try:
            written = launch.write(best, found.scenario.model, framework=name)
        except launch.LaunchError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert refused in told
            continue
        shown = [each.value for each in app.code]
        assert all(file.text.strip() in (text.strip() for text in shown) for file in written.files)
        for sentence in (*written.not_expressible, *written.not_modelled, *written.remarks):
            assert sentence.split(":")[0] in told
        assert written.version in told
