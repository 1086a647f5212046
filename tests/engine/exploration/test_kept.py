"""What is kept ready is made once, however many ask at once, and no more is kept than there is room for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import engine.whatif.prepared_spaces as spaces
import engine.whatif.search as searching
from engine import Scenario, whatif
from engine.whatif.kept import Kept

ASKING = 8


def together(ask: Callable[[int], Any]) -> list[Any]:
    """What several threads get that ask at the same instant, in the order of their numbers."""
    start = threading.Barrier(ASKING)

    def at_once(number: int) -> Any:
        start.wait()
        return ask(number)

    with ThreadPoolExecutor(ASKING) as threads:
        return list(threads.map(at_once, range(ASKING)))


@pytest.mark.parametrize("system", ["h100_80g_nvl8", "h100_80g_sxm"])
def test_many_questions_about_one_scenario_lay_its_space_out_and_search_it_once(
    system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever each of them changes that leaves the space as it is, and whoever comes first."""
    made: Counter[str] = Counter()

    def counting(name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        def made_anew(*arguments: Any) -> Any:
            made[name] += 1
            return whole(*arguments)

        return made_anew

    for module, name in ((spaces, "SearchedSpace"), (searching, "Searcher")):
        monkeypatch.setattr(module, name, counting(name, getattr(module, name)))
    scenario = Scenario.of("gpt3-6.7B", system, num_procs=8, max_batch_size=88, datatype="float16")
    bandwidth = whatif.parameter(scenario, "hbm_bandwidth").value
    answers = together(lambda number: whatif.reoptimise(scenario, {"hbm_bandwidth": bandwidth * (1 + number)}))
    assert made == {"SearchedSpace": 1, "Searcher": 1}
    assert {repr(answer.base) for answer in answers} == {repr(whatif.reoptimise(scenario, {}).base)}
    assert made == {"SearchedSpace": 1, "Searcher": 1}


def test_what_cannot_be_made_is_told_to_all_who_wait_and_made_anew_for_the_next() -> None:
    kept: Kept[int] = Kept(2)
    making = threading.Event()

    def broken() -> int:
        making.wait(10)
        raise ValueError("No such thing.")

    def ask(number: int) -> str:
        if number == ASKING - 1:
            making.set()
        with pytest.raises(ValueError, match="No such thing"):
            kept.get("key", broken)
        return "told"

    assert together(ask) == ["told"] * ASKING
    assert kept.get("key", lambda: 7) == 7


def test_the_latest_used_are_kept() -> None:
    kept: Kept[int] = Kept(2)
    made: list[int] = []

    def ask(number: int) -> int:
        def make() -> int:
            made.append(number)
            return number

        return kept.get(number, make)

    assert [ask(number) for number in (1, 2, 1, 3, 1, 2)] == [1, 2, 1, 3, 1, 2]
    assert made == [1, 2, 3, 2]
