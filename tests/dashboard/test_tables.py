"""Tables write numbers as the pages do, and still hold numbers to sort by."""

import math

import pandas as pd

from dashboard.tables import signed


def test_signs_are_a_minus_or_a_plus_and_nothing_has_both() -> None:
    frame = pd.DataFrame({"error": [-45.31, 3.0, 0.04, -0.04, -10.0, math.nan], "runs": [1, 2, 3, 4, 5, -6]})
    shown = signed(frame, ["error", "absent"])
    html = shown.to_html()
    assert all(f">{text}<" in html for text in ("−45.3", "+3.0", "±0.0", "−10.0", "-6"))
    assert html.count("±0.0") == 2
    pd.testing.assert_frame_equal(shown.data, frame)
