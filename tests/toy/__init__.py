"""A cost model in one package: what somebody who adds one has to write, and nothing else.

A step takes its operations at the peak of the matrix unit, and a pipeline fills and drains. It exists for tests, which
make it known for their duration (`known`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

from engine.cost_models.registry import register, unregister
from tests.toy.cost_model import TOY

__all__ = ["TOY", "known"]


@contextmanager
def known() -> Iterator[None]:
    """Makes the toy cost model known for a while."""
    register(TOY)
    try:
        yield
    finally:
        unregister(TOY.name)
