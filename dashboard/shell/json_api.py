"""JSON API: the verbs of `engine.questions`, served if the settings switch it on.

`POST api/best` with a question answers it, `GET api` lists the verbs, `GET api/openapi.json` describes them. Questions
are answered in separate processes with less priority than the pages, which end when the client disconnects; no client
has all of them at once. A server that requires a login, or is called by an unknown host name, requires a token.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import streamlit as st
from pydantic.json_schema import models_json_schema
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dashboard.settings import Settings
from dashboard.shell.bodies import asker_of
from dashboard.shell.server_stop import is_stopping
from dashboard.shell.turns_of_askers import AskerTurns, TooManyQuestions
from engine import ExplorationCancelled
from engine.questions import VERBS, Answerer, Bounds, QuestionError
from engine.questions.process import Busy, Failed
from models.documents import DocumentError, parse_json

__all__ = ["JsonApi", "description", "routes"]

LOG: Final = logging.getLogger("shardscape.api")
AT_ONCE: Final = 3
"""Questions that are answered at once."""
OF_ONE: Final = 2
"""Questions of one client that are answered at once, so that others always find a free process."""
WAITING_OF_ONE: Final = 4
"""Waiting questions of one client."""
PATIENCE: Final = 30.0
"""Longest wait for a turn [s]; after that the client should ask again."""
BEHIND: Final = 10
"""Niceness of the answering processes, so that pages go first."""
POLL: Final = 0.2
"""Interval of checks for a disconnected client [s]."""
HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_FAILED: Final = "Internal error; the server's log has the reason."
_REFUSALS: Final[Mapping[int, str]] = {
    400: "The question is not understood, or has no answer.",
    401: "A token is required.",
    403: "The server does not answer here.",
    404: "There is no such verb.",
    408: "The question came too slowly.",
    413: "The question is too large.",
    415: "The question is not sent as application/json.",
    429: "Too many questions of the same address are being answered or wait.",
    503: "Other questions are being answered.",
}


class ApiRefusal(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """Refusal of a request: status and sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class JsonApi:
    """Answers requests."""

    def __init__(self, settings: Settings) -> None:
        """settings: bounds of questions, and the token that requests have to have, if any."""
        bounds = Bounds(largest_space=settings.largest_space, longest_seconds=settings.longest_seconds)
        self.answerer = Answerer(bounds, at_once=AT_ONCE, behind=BEHIND)
        self._turns = AskerTurns(AT_ONCE, OF_ONE, WAITING_OF_ONE)
        self._token = settings.api_token

    async def index(self, request: Request) -> Response:
        """List the verbs."""
        try:
            self._admit(request)
        except ApiRefusal as refused:
            return _refusal_response(refused)
        verbs = [{"name": each.name, "title": each.title, "about": each.about} for each in VERBS.values()]
        return JSONResponse({"verbs": verbs, "described_by": "api/openapi.json"}, headers=HEADERS)

    async def describe(self, request: Request) -> Response:
        """Describe the verbs as OpenAPI."""
        try:
            self._admit(request)
        except ApiRefusal as refused:
            return _refusal_response(refused)
        return JSONResponse(description(), headers=HEADERS)

    async def ask(self, request: Request) -> Response:
        """Answer a question."""
        try:
            self._admit(request)
            verb = str(request.path_params["verb"])
            if verb not in VERBS:
                raise ApiRefusal(404, f"There is no verb {verb[:60]!r}; there are {', '.join(VERBS)}.")
            question = await self._question(request)
            asker = asker_of(request.scope)
            await self._take_turn(request, asker)
            try:
                answer = await self._answered(request, verb, question)
            finally:
                self._turns.end(asker)
            return JSONResponse(answer, headers=HEADERS)
        except ApiRefusal as refused:
            return _refusal_response(refused)

    def _admit(self, request: Request) -> None:
        """Raise `ApiRefusal` for a client that may not ask."""
        if self._token:
            kind, _, given = request.headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
                raise ApiRefusal(401, "Send the header Authorization: Bearer with the token of this server.")
        elif _asks_for_login():
            raise ApiRefusal(403, "This server asks for a login; the API needs a token, set by SHARDSCAPE_API_TOKEN.")
        elif not _is_called(request.url.hostname):
            raise ApiRefusal(403, "Use an IP address or a name in server.allowedHosts, or send a token.")
        site = request.headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin"):
            raise ApiRefusal(403, "The API does not answer pages of other sites.")

    async def _question(self, request: Request) -> object:
        """Return the question in a request."""
        # A page of another site cannot send this type without being allowed to, which it is not.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiRefusal(415, "A question is sent with Content-Type: application/json.")
        most = self.answerer.bounds.document_bytes
        too_large = ApiRefusal(413, f"The question has more than {most:,} bytes, the most that are read.")
        stated = request.headers.get("content-length", "0")
        if stated.isdecimal() and (len(stated) > 18 or int(stated) > most):
            raise too_large
        content = bytearray()
        try:
            async for piece in request.stream():
                content += piece
                if len(content) > most:
                    raise too_large
        except ClientDisconnect:
            raise ApiRefusal(400, "The question is incomplete.") from None
        try:
            return parse_json(bytes(content), "The question", "question", DocumentError)
        except DocumentError as problem:
            raise ApiRefusal(400, str(problem)) from None

    async def _take_turn(self, request: Request, asker: str) -> None:
        """Wait for a turn, which the caller must give back. Raises `ApiRefusal`."""
        try:
            turn = self._turns.ask(asker)
        except TooManyQuestions as problem:
            raise ApiRefusal(429 if problem.of_one else 503, str(problem)) from None
        latest = time.monotonic() + PATIENCE
        try:
            while not (await asyncio.wait([turn], timeout=POLL))[0]:
                if is_stopping() or await request.is_disconnected():
                    raise ApiRefusal(503, "The server is being stopped, or nobody waits any more.")
                if time.monotonic() > latest:
                    raise ApiRefusal(503, "Other questions are being answered; ask again when one is done.")
        except BaseException:
            if turn.done():
                self._turns.end(asker)
            turn.cancel()
            raise

    async def _answered(self, request: Request, verb: str, question: object) -> dict[str, Any]:
        """Return the answer to a question; a search is stopped if the client disconnects."""
        gone = threading.Event()

        def found() -> dict[str, Any]:
            return self.answerer.answer(verb, question, stops=gone.is_set, wait=False)

        asked = _in_thread(found)
        try:
            while not (await asyncio.wait([asked], timeout=POLL))[0]:
                if is_stopping() or await request.is_disconnected():
                    gone.set()
            return await asked
        except Busy as problem:
            raise ApiRefusal(503, str(problem)) from None
        except QuestionError as problem:
            raise ApiRefusal(400, str(problem)) from None
        except ExplorationCancelled:
            raise ApiRefusal(503, "The server is being stopped, or nobody waits any more.") from None
        except (Failed, OSError, RuntimeError) as fault:
            LOG.error("%s failed: %s", verb, fault)
            raise ApiRefusal(500, _FAILED) from None
        finally:
            gone.set()


def routes(api: JsonApi) -> list[Route]:
    """Return the routes of the API, also below any base path. api: the API that answers."""
    found = []
    for above in ("", "/{above:path}"):
        found += [
            Route(f"{above}/api", api.index, methods=["GET"]),
            Route(f"{above}/api/openapi.json", api.describe, methods=["GET"]),
            Route(f"{above}/api/{{verb:str}}", api.ask, methods=["POST"]),
        ]
    return found


def description() -> dict[str, Any]:
    """Return the OpenAPI document of all verbs."""
    wanted = [(each, "validation") for verb in VERBS.values() for each in (verb.asks, verb.answers)]
    places, schemas = models_json_schema(wanted, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    refusal = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    refused = {str(status): _describe_response(told, refusal) for status, told in _REFUSALS.items()}
    paths = {}
    for verb in VERBS.values():
        takes, returns = places[verb.asks, "validation"], places[verb.answers, "validation"]
        paths[f"/api/{verb.name}"] = {
            "post": {
                "operationId": verb.name,
                "summary": verb.title,
                "description": verb.about,
                "requestBody": {"required": True, "content": {"application/json": {"schema": takes}}},
                "responses": {"200": _describe_response("The answer.", returns), **refused},
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shardscape", "version": "1", "description": "Questions as the pages ask them."},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _in_thread(function: Callable[[], dict[str, Any]]) -> asyncio.Future[dict[str, Any]]:
    """Return the result of a function that runs in a thread outside the server's pool, which does not delay its end."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[dict[str, Any]] = loop.create_future()

    def settle(result: dict[str, Any] | None, problem: BaseException | None) -> None:
        if found.cancelled():
            return
        if problem is None and result is not None:
            found.set_result(result)
        else:
            found.set_exception(problem or RuntimeError("There is no answer."))

    def work() -> None:
        result, problem = None, None
        try:
            result = function()
        except Exception as raised:
            problem = raised
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=work, name="shardscape-api", daemon=True).start()
    return found


def _describe_response(told: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": told, "content": {"application/json": {"schema": schema}}}


def _refusal_response(refused: ApiRefusal) -> Response:
    later = {"Retry-After": "5"}
    more = {401: {"WWW-Authenticate": "Bearer"}, 429: later, 503: later}.get(refused.status, {})
    return JSONResponse({"error": str(refused)}, refused.status, headers={**HEADERS, **more})


def _asks_for_login() -> bool:
    """Return whether the server requires a login."""
    try:
        return "auth" in st.secrets
    except FileNotFoundError:  # there are no secrets
        return False


def _is_called(name: str | None) -> bool:
    """Return whether a host name is one of the server's. A page of another site whose name resolves to this machine
    uses its own."""
    if not name:
        return False
    named = name.lower().rstrip(".")
    listed = [str(each).strip().lower().rstrip(".") for each in st.get_option("server.allowedHosts") or ()]
    own = str(st.get_option("server.address") or "").lower()
    if named in ("localhost", own, *listed):
        return True
    if any(each == "*" or (each.startswith("*.") and named.endswith(each[1:])) for each in listed):
        return True
    try:
        ipaddress.ip_address(named)
    except ValueError:
        return False
    return not listed
