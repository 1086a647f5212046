"""What papers add to planners by name: known once the room is imported, and said in one sentence before."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from engine.planners.contract import PlanError
from engine.planners.elastic import replay, split
from engine.planners.elastic.cluster.policies import POLICIES, register_policy
from engine.planners.elastic.cluster.policies.first_come import FirstComePolicy
from engine.planners.intra_operator.named_models import named_models

assert list(POLICIES) == ["published", "first-come", "equal-share"]
assert list(split(["roberta", "t5_3B"], 4).totals().index) == ["equal", "exact"]
assert named_models("gpt F") is None
try:
    replay("naive", policy="artifact")
except PlanError as error:
    assert "choose published, first-come, equal-share." in str(error), error
    assert "`import engine.reproductions`" in str(error), error
else:
    raise AssertionError("A policy of a paper is known before the room is imported.")

import engine.reproductions

assert list(POLICIES) == ["artifact", "published", "first-come", "equal-share"]
assert list(split(["roberta", "t5_3B"], 4).totals().index) == ["equal", "greedy", "exact"]
assert named_models("gpt F").depth("gpt F") == 32
assert replay("naive", policy="morphling").policy == "artifact"

register_policy("mine", lambda cluster, pause: FirstComePolicy(cluster))
assert list(POLICIES)[0] == "mine"
mine, theirs = (replay("naive", policy=name).jobs for name in ("mine", "first-come"))
assert mine.equals(theirs)
"""


def test_planners_know_what_papers_and_users_register() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
