"""Parts of the Explore page that are drawn by themselves show what the whole page would."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from dashboard.queries.economics import quick_metrics
from tests.dashboard.page_runs import again, exploration, plots, run


def shown(app: AppTest) -> set[str]:
    """Charts as they are told to the browser, and texts but for those in menus, which are drawn when one is opened."""
    return {spec for _, spec, *_ in plots(app)} | {str(each.value) for each in app.html}


def test_a_metric_that_is_clicked_changes_its_parts_to_what_a_link_to_it_shows() -> None:
    found = exploration()
    before = shown(run("explore", found))
    first, *others = quick_metrics(found.scenario)
    for metric in others:
        app, linked = run("explore", found), shown(run("explore", found, {"metric": metric}))
        (control,) = (each for each in app.button_group if each.value == first)
        control.set_value(metric)
        again(app, found)
        assert app.session_state["_url"]["metric"] == metric
        drawn = shown(app)
        assert drawn <= linked
        assert linked - before <= drawn, "what the metric changes is all there"
        assert not {each for each in drawn if "ss-strip" in each}, "what it does not change is not drawn again"
