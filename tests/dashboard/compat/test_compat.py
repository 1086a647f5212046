"""Everything of Streamlit's and Plotly's inside on which the dashboard leans is still there."""

from __future__ import annotations

import ast
import json
import math
import re
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.offline
import pytest
import streamlit as st
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.state.session_state import SessionState
from streamlit.testing.v1 import AppTest, local_script_runner

import dashboard
from dashboard.compat import front_end, plotly_figures
from dashboard.compat.caches import computed, remembered
from dashboard.compat.message_queue import keep_whole
from dashboard.compat.session_values import listed_while_they_change
from dashboard.compat.types import Place, StyledTable
from dashboard.settings import STATIC
from tests.dashboard.page_runs import wait_for_the_end

ROOM = Path(dashboard.__file__).parent
LOOKS = (ROOM / "compat" / "streamlit.css", ROOM / "shell" / "behaviour.js")
OURS = ROOM / "charts" / "elements" / "style.css"
CLASSES = ("stMarkdownColoredText", "stButtonGroup", "js-plotly-plot", "main-svg")
"""Classes that the dashboard's styles and scripts look for; each occurs in the front end as well."""

THEIR_WAIT = local_script_runner.require_widgets_deltas


@cache
def shipped() -> str:
    """All scripts of the installed front end."""
    return "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((front_end.FOLDER / "static" / "js").glob("*.js"))
    )


@pytest.mark.parametrize("name", front_end.IN_USE)
def test_the_front_end_has_the_element(name: str) -> None:
    assert re.search(rf"[\"'`]{name}[\"'`]", shipped())


def test_the_front_end_has_the_parts_that_are_read_ahead() -> None:
    files = re.findall(r"<\./static/js/([^>]+)>; rel=modulepreload", front_end.first_parts())
    assert all((front_end.FOLDER / "static" / "js" / file).is_file() for file in files)
    names = {file.partition(".")[0] for file in files}
    assert names >= {"BidiComponent", "Button", "ButtonGroup", "Html", "PageLink", "purify"}
    assert "index" not in names


@pytest.mark.parametrize("name", CLASSES)
def test_the_front_end_has_the_class(name: str) -> None:
    assert name in shipped()


def test_every_element_that_styles_and_scripts_look_for_is_listed() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in LOOKS)
    named = set(re.findall(r"data-testid[\^]?=[\"']?(\w+)", text))
    named |= set(re.findall(r"data-testid=\W*(\w+)", front_end.MAIN + front_end.DATA_GRID))
    named |= set(re.findall(r"data-testid=\W*(\w+)", front_end.marked_in_navigation("Map", 0)))
    assert named == set(front_end.IN_USE)


def test_only_one_style_sheet_touches_elements_of_streamlit_s_and_says_why() -> None:
    ours = re.sub(r"/\*.*?\*/", "", OURS.read_text(encoding="utf-8"), flags=re.DOTALL)
    for selector in re.findall(r"([^{}]+)\{", ours):
        if not selector.strip().startswith("@media"):
            assert ".ss-" in selector, selector
    assert not re.search(r"st-key|data-testid|\.st[A-Z]|role=", ours)
    theirs = LOOKS[0].read_text(encoding="utf-8")
    assert st.__version__ in theirs
    for block in theirs.split("\n\n"):  # every group of rules begins with its reason
        assert block.startswith("/*"), block[:80]


def test_other_marks_of_the_front_end_are_there() -> None:
    for mark in ("data-st-overlay-root", "--trigger-width", "data-selected"):
        assert mark in shipped(), mark
    start = (front_end.FOLDER / "index.html").read_text(encoding="utf-8")
    assert re.search(r'<script type="module"[^>]+src="[^"]*/js/', start)  # see `front_end.SCRIPT`


def test_the_page_is_named_in_its_section_of_the_navigation() -> None:
    style = front_end.marked_in_navigation('A "page"', 2)
    assert ":nth-child(3)" in style
    assert json.dumps(' · A "page"', ensure_ascii=False) in style


def test_names_of_libraries_that_are_not_public_are_few_and_known() -> None:
    public = {"streamlit", "streamlit.errors", "plotly", "plotly.graph_objects", "plotly.io", "plotly.offline"}
    found = set()
    for path in (ROOM.parent / "app.py", *ROOM.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [(each.name, "") for each in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "", each.name) for each in node.names]
            else:
                continue
            found |= {
                (path.name, module, name)
                for module, name in names
                if module.partition(".")[0] in ("streamlit", "plotly", "uvicorn") and module not in public
            }
    assert found == {
        ("message_queue.py", "streamlit.runtime.forward_msg_queue", "ForwardMsgQueue"),
        ("session.py", "streamlit.runtime.scriptrunner", "get_script_run_ctx"),
        ("session_values.py", "streamlit.runtime.state.session_state", "SessionState"),
        ("types.py", "streamlit.delta_generator", "DeltaGenerator"),
        ("types.py", "streamlit.runtime.uploaded_file_manager", "UploadedFile"),
    }


def test_a_run_of_a_page_has_a_context_with_what_is_read_of_it() -> None:
    def script() -> None:
        import streamlit as st
        from streamlit.runtime.scriptrunner import get_script_run_ctx

        from dashboard.compat import session

        context = get_script_run_ctx()
        st.json(
            {
                "back": session.went_back(),
                "browser": session.in_browser(),
                "names": isinstance(context.is_history_navigation, bool),
            }
        )

    app = AppTest.from_function(script).run()
    assert not app.exception
    assert json.loads(app.json[0].value) == {"back": False, "browser": False, "names": True}


def test_a_page_that_takes_too_long_is_ended_as_apptest_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the wait of its own that tests put in place of AppTest's, which must still be asked for by that name."""

    def script() -> None:
        import threading

        import streamlit as st

        while True:
            st.text("still here")
            threading.Event().wait(0.001)

    ends = []
    for wait in (THEIR_WAIT, wait_for_the_end):
        monkeypatch.setattr(local_script_runner, "require_widgets_deltas", wait)
        with pytest.raises(RuntimeError) as ended:
            AppTest.from_function(script).run(timeout=0.05)
        ends.append(str(ended.value))
        assert not [thread for thread in threading.enumerate() if "ScriptRunner" in thread.name]
    assert ends == ["AppTest script run timed out after 0.05(s)"] * 2


def test_nothing_that_waits_for_a_browser_is_placed_where_that_knows_of_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a part of the page that runs again before the browser has heard of all of it, with a part inside."""

    def waiting(queue: ForwardMsgQueue) -> list[list[int]]:
        for path, fragment in (([0, 0], "outer"), ([0, 0, 0], "outer"), ([0, 0, 1], "inner"), ([0, 0, 1, 0], "inner")):
            message = ForwardMsg()
            message.metadata.delta_path.extend(path)
            message.delta.fragment_id = fragment
            message.delta.add_block.SetInParent()
            queue.enqueue(message)
        queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=["outer"])
        return [list(message.metadata.delta_path) for message in queue.flush()]

    def unknown(paths: list[list[int]]) -> list[list[int]]:
        """Those below an element that nobody placed."""
        return [path for path in paths if len(path) > 2 and path[:-1] not in paths]

    assert unknown(waiting(ForwardMsgQueue())), "Streamlit keeps pages whole by itself: compat/message_queue.py can go."
    monkeypatch.setattr(ForwardMsgQueue, "clear", ForwardMsgQueue.clear)
    keep_whole()
    assert len(waiting(ForwardMsgQueue())) == 4


def test_values_of_a_session_are_listed_while_another_run_adds_some(monkeypatch: pytest.MonkeyPatch) -> None:
    named = SessionState._get_widget_id

    def named_late(self: SessionState, key: str) -> str:
        self._new_session_state.setdefault("c", 3)
        return named(self, key)

    def changing() -> SessionState:
        state = SessionState()
        state["a"], state["b"] = 1, 2
        return state

    monkeypatch.setattr(SessionState, "_get_widget_id", named_late)
    with pytest.raises(RuntimeError, match="changed size"):  # else compat/session_values.py can go
        changing().filtered_state  # noqa: B018
    monkeypatch.setattr(SessionState, "_keys", SessionState._keys)
    listed_while_they_change()
    assert changing().filtered_state == {"a": 1, "b": 2, "c": 3}


def test_outside_a_page_there_is_no_run() -> None:
    from dashboard.compat import session

    assert not session.went_back()


def test_what_is_remembered_is_computed_once_and_can_be_computed_beside_the_cache() -> None:
    asked: list[int] = []

    @remembered(entries=2)
    def doubled(number: int, _unseen: int = 0) -> int:
        asked.append(number)
        return 2 * number

    assert [doubled(2), doubled(2, 1), doubled(3)] == [4, 4, 6]
    assert asked == [2, 3]
    assert computed(doubled)(2) == 4
    assert asked == [2, 3, 2]


def test_modules_are_imported_without_a_word_where_no_server_runs() -> None:
    names = [".".join(path.relative_to(ROOM.parent).with_suffix("").parts) for path in ROOM.rglob("*.py")]
    modules = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    assert len(modules) > 200
    code = f"import importlib\nfor name in {modules!r}: importlib.import_module(name)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOM.parent, capture_output=True, text=True, check=True)
    assert ended.stdout + ended.stderr == ""


def test_public_functions_return_the_types_that_have_no_public_name() -> None:
    assert isinstance(pd.DataFrame({"a": [1]}).style, StyledTable)
    assert isinstance(st.empty(), Place)


def test_plotly_writes_what_is_drawn_as_figures_do_and_gives_its_library() -> None:
    trace = {
        "type": "bar",
        "x": np.arange(3),
        "y": [1.5, None, 2],
        "customdata": np.ones((3, 2)),
        "width": np.float64(0.5),
        "hovertext": pd.Series(["b", "c", "d"]),
        "marker": {"color": pd.Series([1.0, 2.0, math.nan])},
        "meta": [["a", 1]],
        "ids": pd.DataFrame({"a": ["b", "c"], "d": [1, 2]}),
    }
    layout = {"title": {"text": "A"}, "shapes": [{"type": "line", "x0": 0.5}], "yaxis": {"tickvals": (1, 2)}}
    expected = json.loads(go.Figure(data=[trace], layout=layout).to_json())
    del expected["layout"]["template"]  # Plotly's own colours, which the house style replaces
    assert "bdata" in expected["data"][0]["marker"]["color"]
    assert json.loads(plotly_figures.as_json([trace], layout)) == expected


def test_the_vendored_build_is_the_version_that_plotly_brings() -> None:
    assert plotly.offline.get_plotlyjs_version() == plotly_figures.VERSION
    build, full = plotly_figures.javascript(plotly_figures.CARTESIAN), plotly_figures.javascript()
    assert build.startswith(f"/**\n* plotly.js (cartesian - minified) v{plotly_figures.VERSION}\n")
    assert f"plotly.js v{plotly_figures.VERSION}\n" in full[:100]
    assert "window.Plotly = Plotly" in build
    assert len(build) < len(full) / 3
    assert "Plotly Technologies Inc." in (STATIC / "plotly-LICENSE.txt").read_text(encoding="utf-8")


def test_kinds_of_traces_come_with_the_build_that_draws_them() -> None:
    def kinds(text: str) -> set[str]:
        return set(re.findall(r'moduleType:"trace",name:"(\w+)"', text))

    build, full = plotly_figures.javascript(plotly_figures.CARTESIAN), plotly_figures.javascript()
    assert kinds(build) == plotly_figures.CARTESIAN < kinds(full)
    assert plotly_figures.address(plotly_figures.CARTESIAN) == plotly_figures.address()
    for other in kinds(full) - plotly_figures.CARTESIAN:
        assert plotly_figures.javascript(["bar", other]) == full
        assert plotly_figures.address(["bar", other]).endswith(plotly_figures.file_name())


def test_parts_that_are_not_drawn_have_the_whole_page_run_again() -> None:
    def page() -> None:
        import streamlit as st

        from dashboard.compat.session import run_again

        st.session_state["runs"] = st.session_state.get("runs", 0) + 1
        if st.session_state["runs"] > 1:  # as after somebody came back to the page, or before it was drawn
            st.button("Again", on_click=run_again, args=(["a_part", "another"],))
        else:
            st.button("Again", on_click=run_again, args=(["a_part"],))

            @st.fragment(key="a_part")
            def part() -> None:
                st.session_state["parts"] = st.session_state.get("parts", 0) + 1

            part()

    app = AppTest.from_function(page).run()
    app.button[0].click().run()
    assert (app.session_state["runs"], app.session_state["parts"]) == (1, 2)
    app.run()
    app.button[0].click().run()
    assert not app.exception
    assert (app.session_state["runs"], app.session_state["parts"]) == (3, 2)


def test_fragments_run_again_through_one_function_that_knows_pages_without_them() -> None:
    told = {path.name for path in ROOM.rglob("*.py") if re.search(r"st\.rerun\([^)]", path.read_text(encoding="utf-8"))}
    assert told == {"session.py"}
