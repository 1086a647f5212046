"""Tables write numbers as the pages do, and still hold numbers to sort by."""

import math

import pandas as pd
import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.widgets.tables import arranged, fitting, grouped, signed


def test_signs_are_a_minus_or_a_plus_and_nothing_has_both() -> None:
    frame = pd.DataFrame({"error": [-45.31, 3.0, 0.04, -0.04, -10.0, math.nan], "runs": [1, 2, 3, 4, 5, -6]})
    shown = signed(frame, ["error", "absent"])
    html = shown.to_html()
    assert all(f">{text}<" in html for text in ("−45.3", "+3.0", "±0.0", "−10.0", "-6"))
    assert html.count("±0.0") == 2
    pd.testing.assert_frame_equal(shown.data, frame)


def test_every_column_has_its_own_decimals() -> None:
    frame = pd.DataFrame({"x": [-1234.5678, 0.001], "y": [2.0, -0.5]})
    html = signed(frame, ["x", "y"], {"x": 2, "y": 0}).to_html()
    assert all(f">{text}<" in html for text in ("−1,234.57", "±0.00", "+2", "±0"))
    html = grouped(frame, {"x": 1}).to_html()
    assert all(f">{text}<" in html for text in ("−1,234.6", "0.0"))


def test_executions_have_commas_between_thousands_and_stay_numbers() -> None:
    frame = pd.DataFrame({"id": [2_553_667, 12], "sample_rate": [147.5, 12_345.678]})
    shown, settings = arranged(frame)
    assert [settings[name]["type_config"]["format"] for name in frame] == ["%,d", "%,.0f"]
    pd.testing.assert_frame_equal(shown, frame)


def test_what_an_execution_does_not_have_is_a_dash() -> None:
    def script() -> None:
        import pandas as pd

        from dashboard.widgets.tables import table

        table(pd.DataFrame({"id": [1, 2], "selective_recompute": [None, "attention"]}), "t", "two", height=100)

    app = AppTest.from_function(script).run()
    assert not app.exception
    assert app.dataframe[0].proto.placeholder == "–"


def test_columns_that_fit_are_those_that_tell_rows_apart() -> None:
    frame = pd.DataFrame({"id": [1, 2], "same": [3, 3], "wide": [4, 5], "b": [6, 7], "c": [8, 9], "d": [0, 1]})
    settings = {name: st.column_config.NumberColumn(width=300 if name == "wide" else 100) for name in frame}
    others = ["same", "wide", "b", "c", "d"]
    assert fitting(frame, settings, ["id"], others, 320) == ["id", "b", "c"]
    assert fitting(frame, settings, ["id"], others, 400) == ["id", "wide"]
    assert fitting(frame, settings, ["id"], others, 50) == ["id"]
