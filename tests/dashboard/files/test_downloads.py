"""Downloads beside the pages: made when asked for, sent as they grow, by nobody who has no link, and bounded."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any
from unittest.mock import patch

import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from dashboard.files import downloads
from dashboard.files.downloads import Offer
from dashboard.files.growing_file import PIECE, GrowingFile


@pytest.fixture(autouse=True)
def _no_offers() -> Iterator[None]:
    with (
        patch.object(downloads, "_offers", type(downloads._offers)()),
        patch.object(downloads, "_served", False),
        patch.object(downloads, "_problems", type(downloads._problems)()),
    ):
        yield


def of(content: bytes, name: str = "a.csv") -> Offer:
    """An offer of a file with this content."""

    def write(target: IO[bytes]) -> None:
        target.write(content)

    return Offer(write, name, "text/csv")


def answer(token: str, method: str = "GET") -> Response:
    """What the server answers."""
    return downloads._answer(
        Request({"type": "http", "method": method, "path_params": {"token": token}, "headers": []})
    )


def pieces(response: Response) -> list[bytes]:
    """The body, piece by piece."""
    assert isinstance(response, StreamingResponse)

    async def read() -> list[bytes]:
        return [bytes(piece) async for piece in response.body_iterator]  # type: ignore[arg-type]

    # In a thread of its own: in this one a browser of other tests may keep a loop running.
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, read()).result()


def test_a_file_comes_whole_in_pieces() -> None:
    content = bytes(range(256)) * 5_000
    response = answer(downloads.offer(of(content, 'größe "1".csv'), "x"))
    assert response.headers["content-disposition"] == "attachment; filename*=utf-8''gr%C3%B6%C3%9Fe%20%221%22.csv"
    assert response.headers["content-type"].startswith("text/csv")
    got = pieces(response)
    assert b"".join(got) == content
    assert max(map(len, got)) <= PIECE
    assert len(got) == -(-len(content) // PIECE)


def test_how_far_a_file_is_can_be_asked_while_it_is_made() -> None:
    steps = {"half": threading.Event(), "end": threading.Event()}
    told = threading.Event()
    tell = downloads.teller("a.csv", "x")
    tell(0.3)  # nobody makes it
    assert downloads.reached("a.csv", "x") is None

    def write(target: IO[bytes]) -> None:
        target.write(b"first")
        assert steps["half"].wait(20)
        tell(0.5)
        told.set()
        assert steps["end"].wait(20)

    response = answer(downloads.offer(Offer(write, "a.csv", "text/csv"), "x"))
    assert downloads.reached("a.csv", "x") == 0.0
    assert downloads.reached("a.csv", "y") is None
    steps["half"].set()
    assert told.wait(20)
    assert downloads.reached("a.csv", "x") == 0.5
    steps["end"].set()
    assert b"".join(pieces(response)) == b"first"
    assert downloads.reached("a.csv", "x") is None


def test_what_is_written_is_sent_before_the_rest_is() -> None:
    go = threading.Event()

    def write(target: IO[bytes]) -> None:
        assert not target.seekable()
        target.write(b"first")
        assert go.wait(20)
        target.write(b"rest")

    file = GrowingFile(write)
    assert file.begun(20) is None
    parts = file.pieces()
    assert next(parts) == b"first"
    go.set()
    assert list(parts) == [b"rest"]
    assert file._file.closed


def until(true: Callable[[], bool]) -> bool:
    """Whether something becomes true within some seconds."""
    end = time.monotonic() + 20
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    return true()


def test_a_reader_that_leaves_stops_the_writing_and_frees_its_place() -> None:
    def write(target: IO[bytes]) -> None:
        while True:
            target.write(bytes(1_000))

    token = downloads.offer(Offer(write, "a.csv", "text/csv"), "x")
    for _ in range(2 * downloads.AT_ONCE):
        assert until(lambda: downloads._makers._value > 0)  # type: ignore[attr-defined]
        file = answer(token)
        assert isinstance(file, StreamingResponse)

        async def first(file: StreamingResponse = file) -> None:
            parts = file.body_iterator
            assert await anext(aiter(parts))  # type: ignore[arg-type]

        with ThreadPoolExecutor(1) as threads:
            threads.submit(asyncio.run, first()).result()
        del file
    assert until(lambda: downloads._makers._value == downloads.AT_ONCE)  # type: ignore[attr-defined]


def test_a_reader_whose_connection_ends_while_nothing_comes_is_let_go() -> None:
    go, ended = threading.Event(), threading.Event()

    def write(target: IO[bytes]) -> None:
        try:
            target.write(b"first")
            assert go.wait(20)  # as where millions of rows are sorted
            target.write(b"rest")
        finally:
            ended.set()

    response = answer(downloads.offer(Offer(write, "a.csv", "text/csv"), "x"))
    sent: list[Any] = []

    async def serve() -> None:
        async def receive() -> dict[str, Any]:
            while len(sent) < 2:  # the head and the first piece
                await asyncio.sleep(0.005)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)

    try:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(asyncio.run, serve()).result(10)
            assert not ended.is_set()
            go.set()
        assert ended.wait(20)
        assert b"".join(message.get("body", b"") for message in sent) == b"first"
        assert until(lambda: downloads._makers._value == downloads.AT_ONCE)  # type: ignore[attr-defined]
    finally:
        go.set()


def test_what_fails_on_the_way_breaks_off_instead_of_looking_complete() -> None:
    def write(target: IO[bytes]) -> None:
        target.write(b"first")
        raise OSError("no space left")

    response = answer(downloads.offer(Offer(write, "a.csv", "text/csv"), "x"))
    with pytest.raises(OSError, match="no space left"):
        pieces(response)


def test_a_link_tells_nothing_and_equal_contents_have_equal_links() -> None:
    first, same = downloads.offer(of(b"1"), "key"), downloads.offer(of(b"1"), "key")
    others = {downloads.offer(of(b"1"), "other"), downloads.offer(of(b"1", "b.csv"), "key")}
    assert first == same
    assert len({first, *others}) == 3
    with patch.object(downloads, "_SECRET", b"of another server"):
        assert downloads.offer(of(b"1"), "key") != first


def test_an_unknown_or_forgotten_link_gets_a_sentence() -> None:
    token = downloads.offer(of(b"1"), "first")
    for number in range(downloads.MOST):
        downloads.offer(of(b"1"), str(number))
    for unknown in (token, "nothing", "../../etc/passwd"):
        response = answer(unknown)
        assert response.status_code == 404
        assert b"no longer offered" in response.body
    assert pieces(answer(downloads.offer(of(b"1"), "7"))) == [b"1"]


def test_looking_at_a_link_does_not_make_the_file() -> None:
    def write(target: IO[bytes]) -> None:
        raise AssertionError("asked for")

    response = answer(downloads.offer(Offer(write, "a.csv", "text/csv"), "x"), "HEAD")
    assert response.status_code == 200
    assert response.headers["content-disposition"].endswith("a.csv")


def test_a_file_that_cannot_be_made_gets_a_sentence_and_frees_its_place() -> None:
    def write(target: IO[bytes]) -> None:
        raise OSError("no space left in /var/tmp/secret")

    token = downloads.offer(Offer(write, "a.csv", "text/csv"), "x")
    for _ in range(2 * downloads.AT_ONCE):
        response = answer(token)
        assert response.status_code == 500
        assert b"secret" not in response.body
    assert pieces(answer(downloads.offer(of(b"1"), "y"))) == [b"1"]


@pytest.mark.parametrize("started", [b"", b"first"])
def test_a_full_disk_is_told_of_until_the_file_is_asked_for_again(started: bytes) -> None:
    full = [True]

    def write(target: IO[bytes]) -> None:
        if started:
            target.write(started)
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/var/tmp/secret")
        target.write(b"rest")

    token = downloads.offer(Offer(write, "a.csv", "text/csv"), "x")
    assert downloads.problem("a.csv", "x") == ""
    response = answer(token)
    if started:
        with pytest.raises(OSError, match="No space"):
            pieces(response)
    else:
        assert response.body.decode() == downloads.problem("a.csv", "x")
    assert "no room left on its disk" in downloads.problem("a.csv", "x")
    assert "secret" not in downloads.problem("a.csv", "x")
    assert downloads.problem("a.csv", "y") == ""
    full[0] = False
    assert b"".join(pieces(answer(token))) == started + b"rest"
    assert downloads.problem("a.csv", "x") == ""


def test_only_some_files_are_made_at_once() -> None:
    go, begun = threading.Event(), threading.Semaphore(0)

    def write(target: IO[bytes]) -> None:
        begun.release()
        assert go.wait(20)
        target.write(b"1")

    token = downloads.offer(Offer(write, "a.csv", "text/csv"), "x")
    answers: list[Response] = []
    threads = [threading.Thread(target=lambda: answers.append(answer(token))) for _ in range(downloads.AT_ONCE)]
    for thread in threads:
        thread.start()
    assert all(begun.acquire(timeout=20) for _ in threads)
    busy = answer(token)
    go.set()
    for thread in threads:
        thread.join()
    assert busy.status_code == 503
    assert [response.status_code for response in answers] == [200] * downloads.AT_ONCE


def test_a_page_offers_a_link_only_where_the_server_answers_it() -> None:
    drawn: list[Any] = []
    with (
        patch("streamlit.html", drawn.append),
        patch("streamlit.download_button", lambda *given, **more: drawn.append((given, more))),
    ):
        downloads.button("<CSV>", of(b"1"), "x", key="a")
        assert drawn.pop()[0][:1] == ("<CSV>",)
        assert [route.path for route in downloads.routes()] == ["/download/{token}", "/{above:path}/download/{token}"]
        downloads.button("<CSV>", of(b"1"), "x", key="a")
        token = downloads.offer(of(b"1"), "x")
        assert drawn.pop() == f'<a class="ss-download" href="download/{token}" download>&lt;CSV&gt;</a>'
        downloads.button("<CSV>", of(b"1"), "x", key="a", disabled=True)
        assert drawn.pop()[1]["disabled"]
