"""Executions in words: one thing has one word in filters, sentences and tables."""

import pytest

from dashboard.queries.filters import FILTERABLE, Filter
from dashboard.words.executions import recomputed

KIND = FILTERABLE["activation_recompute"]


@pytest.mark.parametrize(
    ("execution", "words", "in_tables"),
    [
        ({"activation_recompute": "none"}, "none", "none"),
        ({"activation_recompute": "full", "selective_recompute": "attention"}, "full", "full"),
        ({"activation_recompute": "attn_only"}, "selective (attention)", "selective"),
        (
            {"activation_recompute": "attn_only", "selective_recompute": "attention"},
            "selective (attention)",
            "selective",
        ),
        (
            {"activation_recompute": "attn_only", "selective_recompute": "half"},
            "selective (every second block)",
            "selective (half)",
        ),
        (
            {"activation_recompute": "attn_only", "selective_recompute": "save_dots"},
            "selective (all but products)",
            "selective (all but products)",
        ),
    ],
)
def test_what_is_computed_again_has_one_word(execution: dict[str, str], words: str, in_tables: str) -> None:
    assert recomputed(execution) == words
    assert recomputed(execution, brief=True) == in_tables
    assert Filter(KIND, (execution["activation_recompute"],)).words.endswith(words.partition(" (")[0])
