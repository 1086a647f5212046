"""Whoever asks much, or slowly, does not keep others from being answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from dashboard.settings import Settings
from dashboard.shell.bodies import BodyBounds, BoundedBodies
from dashboard.shell.json_api import OF_ONE, WAITING_OF_ONE, JsonApi, routes
from dashboard.shell.turns_of_askers import AskerTurns, TooManyQuestions
from tests.dashboard.shell.test_nothing_sent import LONG

Found = TypeVar("Found")


def alone(work: Coroutine[Any, Any, Found]) -> Found:
    """What asynchronous work comes to, in a thread of its own: a browser of another test keeps this one's loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def visitor(app: Starlette, address: str) -> httpx.AsyncClient:
    """A client of an application at an address of its own."""
    transport = httpx.ASGITransport(app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8501", timeout=120)


# Turns ----------------------------------------------------------------------------------------------------------------


@given(events=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["ask", "ask", "end", "leave"]))))
def test_nobody_has_all_turns_and_a_newcomer_finds_one(events: list[tuple[str, str]]) -> None:
    async def live() -> None:
        turns = AskerTurns(3, 2, 4)
        asked: list[tuple[str, asyncio.Future[None]]] = []
        for asker, event in events:
            mine = [turn for one, turn in asked if one == asker]
            had = [turn for turn in mine if turn.done()]
            waits = [turn for turn in mine if not turn.done()]
            if event == "ask":
                try:
                    asked.append((asker, turns.ask(asker)))
                except TooManyQuestions:
                    assert len(waits) >= 4
            elif event == "end" and had:
                asked.remove((asker, had[0]))
                turns.end(asker)
            elif event == "leave" and waits:
                asked.remove((asker, waits[0]))
                waits[0].cancel()
            answered = Counter(one for one, turn in asked if turn.done())
            waiting = Counter(one for one, turn in asked if not turn.done())
            assert answered.total() <= 3
            assert max(answered.values(), default=0) <= 2
            assert max(waiting.values(), default=0) <= 4
            # A turn is free only while everybody who waits has as many as one may have.
            assert answered.total() == 3 or all(answered[one] == 2 for one in waiting)

    alone(live())


def test_askers_who_wait_come_in_turn() -> None:
    async def live() -> Counter[str]:
        turns, served = AskerTurns(3, 2, 4), Counter[str]()
        waiting = [("much", turns.ask("much")) for _ in range(4)] + [(one, turns.ask(one)) for one in "abcdef"]
        answered: list[str] = []
        for _ in range(70):
            answered += [asker for asker, turn in waiting if turn.done()]
            waiting = [(asker, turn) for asker, turn in waiting if not turn.done()]
            asker = answered.pop(0)  # which began first ends first
            served[asker] += 1
            turns.end(asker)
            waiting.append((asker, turns.ask(asker)))
        return served

    served = alone(live())
    # Whoever always has questions that wait has a turn for each of the two that it may have at once.
    assert max(served.values()) - min(served[one] for one in "abcdef") <= 12
    assert max(served[one] for one in "abcdef") - min(served[one] for one in "abcdef") <= 1


def test_long_questions_of_one_asker_leave_the_api_to_others() -> None:
    api = JsonApi(Settings(store=None, longest_seconds=6.0))
    app = Starlette(routes=routes(api))

    async def live() -> tuple[list[httpx.Response], list[httpx.Response]]:
        async with visitor(app, "10.0.0.1") as much, visitor(app, "10.0.0.2") as other:
            long = [
                asyncio.create_task(much.post("/api/sensitivity", json={"scenario": LONG}))
                for _ in range(OF_ONE + WAITING_OF_ONE + 1)
            ]
            await asyncio.wait(long, return_when=asyncio.FIRST_COMPLETED)
            refused = [task.result() for task in long if task.done()]
            answers = [await other.post("/api/list_models", json={"search": "gpt3"}) for _ in range(3)]
            under_way = [task for task in long if not task.done()]
            assert under_way
            for task in long:
                task.cancel()
            await asyncio.gather(*long, return_exceptions=True)
            return refused, answers

    try:
        refused, answers = alone(live())
    finally:
        api.answerer.close()
    assert [answer.status_code for answer in answers] == [200] * 3
    (found,) = refused
    assert found.status_code == 429
    assert found.headers["Retry-After"] == "5"
    assert found.json()["error"] == "6 questions of yours are being answered or wait; ask again when one is done."


# Bodies ---------------------------------------------------------------------------------------------------------------


async def echoed(request: Request) -> JSONResponse:
    """Answers, a moment after the body has come, how large it was."""
    size = len(await request.body())
    await asyncio.sleep(0.3)
    return JSONResponse({"size": size})


def bounded(**bounds: float) -> Starlette:
    return Starlette(
        routes=[Route("/", echoed, methods=["POST", "GET"])],
        middleware=[Middleware(BoundedBodies, bounds=BodyBounds(**bounds))],
    )


async def pieces(number: int, size: int, pause: float) -> AsyncIterator[bytes]:
    for _ in range(number):
        yield b" " * size
        await asyncio.sleep(pause)


def test_a_body_that_comes_too_slowly_is_given_up() -> None:
    app = bounded(grace_s=0.5, least_rate=10_000)

    async def live() -> list[httpx.Response]:
        async with visitor(app, "10.0.0.1") as client:
            slow = client.post("/", content=pieces(10**6, 1, 0.05))
            steady = client.post("/", content=pieces(12, 10_000, 0.1))  # longer than the grace, and fast enough
            return list(await asyncio.gather(slow, steady, client.get("/")))

    slow, steady, without = alone(live())
    assert slow.status_code == 408
    assert slow.json()["error"] == "The request did not arrive within 1 s; send it again."
    assert (steady.status_code, steady.json()["size"]) == (200, 120_000)
    assert without.status_code == 200


@pytest.mark.parametrize("bound", ["bytes", "number"])
@pytest.mark.parametrize("of_one", [True, False])
def test_all_bodies_together_are_bounded_and_those_of_one_address_before(bound: str, of_one: bool) -> None:
    most = {"bytes": 40_000, "bytes_of_one": 20_000} if bound == "bytes" else {"number": 4, "number_of_one": 2}
    app = bounded(**most)
    addresses = ["10.0.0.1"] * 5 if of_one else [f"10.0.0.{number}" for number in range(5)]

    async def live() -> tuple[list[httpx.Response], list[httpx.Response]]:
        async def post(address: str) -> httpx.Response:
            async with visitor(app, address) as client:
                return await client.post("/", content=b" " * 10_000)

        return [*await asyncio.gather(*map(post, addresses))], [await post(address) for address in addresses]

    together, one_by_one = alone(live())
    refused = [answer for answer in together if answer.status_code != 200]
    assert len(refused) == (3 if of_one else 1)
    for answer in refused:
        assert answer.status_code == (429 if of_one else 503)
        assert answer.headers["Retry-After"] == "5"
        assert answer.json()["error"].startswith("Too many requests ")
    assert [answer.status_code for answer in one_by_one] == [200] * 5
