"""Links that say nonsense are told so, or ignored, and never break a page."""

import pytest

from tests.dashboard.page_runs import exploration, plots, run

NONSENSE = ("<script>alert(1)</script>", "99999999999999999999", "-1", "nan", "', drop table x; --", "é" * 500, "0")


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("memory", ("memory_hbm", "memory_tier", "memory_sort")),
        ("pareto", ("pareto_x", "pareto_y", "pareto_z", "pareto_xscale", "pareto_close")),
        (
            "results",
            (
                "results_where",
                "results_sort",
                "results_order",
                "results_size",
                "results_page",
                "results_columns",
                "results_cell",
            ),
        ),
        ("execution", ("execution_b", "execution_figure")),
    ],
)
def test_nonsense_in_a_link_breaks_nothing(page: str, names: tuple[str, ...], value: str) -> None:
    shown = run(page, exploration(), dict.fromkeys(names, value) | {"cell": value, "id": value})
    assert not shown.exception
    assert len(plots(shown)) + len(shown.dataframe) + len(shown.warning) > 0
