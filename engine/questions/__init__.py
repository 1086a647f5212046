"""Questions and answers as plain JSON documents, identical for command line, MCP server and JSON API.

A verb takes a document and returns one, both described by a schema; a scenario in it is the document that pages and
files have. Questions are bounded in size, time and memory; an error is one sentence.

    >>> from engine.questions import answer
    >>> scenario = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "num_procs": 8, "max_batch_size": 8,
    ...             "datatype": "float16"}
    >>> answer("best", {"scenario": scenario})["total"]                                          # doctest: +SKIP
    217056
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.questions.verb import QuestionError, Verb

if TYPE_CHECKING:
    from engine.questions.bounds import Bounds, Context
    from engine.questions.process import Answerer
    from engine.questions.registry import VERBS, answer, verb_of

__all__ = ["VERBS", "Answerer", "Bounds", "Context", "QuestionError", "Verb", "answer", "verb_of"]

_HOMES = {
    "Answerer": "process",
    "Bounds": "bounds",
    "Context": "bounds",
    "VERBS": "registry",
    "answer": "registry",
    "verb_of": "registry",
}
"""Modules of the names that need everything that answers: commands only need the documents of their questions."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Return a name of a module that is imported when it is asked for first."""
        if name in _HOMES:
            return getattr(import_module(f"engine.questions.{_HOMES[name]}"), name)
        raise AttributeError(f"module 'engine.questions' has no attribute {name!r}")
