"""Parameters of the models in Alpa's suites, which are named after them.

Source: Alpa (b8078a9f), `benchmark/alpa/suite_manual_gpt.py` and `suite_manual_moe.py` (Apache-2.0).
"""

from __future__ import annotations

from typing import Final

from engine.reproductions.alpa.suite_models import GPT, MOE, split_name, unknown_model

__all__ = ["BILLIONS", "suite_parameters"]

BILLIONS: Final = {
    "gpt": (0.125, 0.350, 0.760, 1.3, 2.6, 6.7, 15.0, 39.0, 76.0),
    "moe": (0.380, 0.690, 1.3, 2.4, 7.1, 10.0, 27.0, 70.0, 140.0),
}
"""Family -> names of the models A to I in the suites [billion parameters]."""


def suite_parameters(name: str) -> int:
    """Returns how many parameters a model of Alpa's suites has: matrices of all layers, tied embedding, positions.

    Alpa's MLPs of mixtures are eight hidden sizes wide, in every second layer as experts; CFP ran the same names with
    four.

    Args:
        name: such as "gpt F".

    Raises:
        PlanError: there is no such model in Alpa's suites.
    """
    family, letter = split_name(name)
    if family == "gpt" and letter in GPT:
        seq, hidden, layers, _, vocab = GPT[letter]
        return 12 * hidden**2 * layers + (vocab + seq) * hidden
    if family == "moe" and letter in MOE:
        seq, hidden, layers, _, vocab, experts, _ = MOE[letter]
        pair = (4 + 16 * experts) * hidden**2 + hidden * experts + (4 + 16) * hidden**2
        return pair * layers // 2 + (vocab + seq) * hidden
    raise unknown_model(name)
