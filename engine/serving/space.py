"""Every deployment of a model on a number of processors under stated limits, in a fixed order.

A layout is (tensor_par, pipeline_par, replicas, expert_par) with tensor_par x pipeline_par x replicas = processors. The
space lists every layout, including invalid ones for the model, which are counted with their reason; only expert degrees
that no model could have (neither a divisor of TP nor a multiple that divides TP x replicas) are not listed.

A limit is one value, a list of values, or a range {"min": a, "max": b}. Batches without a limit are powers of two and
1.5 times powers of two; a value or a list names the batches themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.executions.limits import permits
from engine.serving.deployments import WORDS, Deployments, expert_layout
from engine.space.space import divisors
from models.documents import did_you_mean, shown

__all__ = ["BATCHES", "LIMITED", "MOST", "DeploymentSpace", "ServingLimitError", "SpaceTooLarge"]

BATCHES: Final = tuple(sorted({2**power for power in range(13)} | {3 * 2**power for power in range(11)}))
"""Batches per replica that are tried without a limit: 1, 2, 3, 4, 6, ... 4096."""

LIMITED: Final = (
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "replicas",
    "batch",
    "weight_bits",
    "kv_bits",
    "attention_bits",
    "compute_bits",
    "launch",
    "engine",
)
CHOICES: Final[Mapping[str, tuple[Any, ...]]] = {
    "weight_bits": (16, 8, 4),
    "kv_bits": (16, 8, 4),
    "attention_bits": (16, 8, 4),
    "compute_bits": (16, 8, 4),
    **WORDS,
}
DEFAULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "weight_bits": (16, 8),
    "kv_bits": (16, 8),
    "attention_bits": (0,),
    "compute_bits": (0,),
    "launch": ("eager", "graphs"),
    "engine": ("generic",),
}
"""Values tried without a limit; a limit may name others. 0 stands for the bits of the weights."""
MOST: Final = 20_000_000
"""Deployments of the largest space. Source: stated by us."""
LARGEST: Final = 2**40
"""Largest number that a limit may have. Source: stated by us."""
MOST_PROCESSORS: Final = 2**20
"""Most processors of a space. Source: stated by us."""


class ServingLimitError(ValueError):
    """A limit names no field, or a size makes no sense; the message is one sentence."""


class SpaceTooLarge(ValueError):  # noqa: N818 - reads as a sentence where it is raised
    """A space has more deployments than can be evaluated at once."""


@dataclass(frozen=True)
class DeploymentSpace:
    """Deployments of `num_procs` processors for prompts and outputs of one length [tokens], limited by `limits`."""

    num_procs: int
    prompt: int
    output: int
    limits: Mapping[str, Any]
    mixture: bool
    """True if the model has experts; only then are there expert degrees above 1."""

    @classmethod
    def of(
        cls,
        num_procs: int,
        prompt: int,
        output: int,
        limits: Mapping[str, Any] | None,
        *,
        mixture: bool,
        largest: int = MOST,
    ) -> DeploymentSpace:
        """Return a checked space.

        Args:
            num_procs: processors of all replicas.
            prompt, output: tokens of a request.
            limits: allowed values by field.
            mixture: whether the model has experts.
            largest: deployments that the space may have.

        Raises `ServingLimitError`, or `SpaceTooLarge`.
        """
        for name, value, most in (
            ("num_procs", num_procs, MOST_PROCESSORS),
            ("prompt", prompt, 2**30),
            ("output", output, 2**30),
        ):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
                raise ServingLimitError(f"{name} is {shown(value)}; it must be a whole number from 1 to {most:,}.")
        space = cls(int(num_procs), int(prompt), int(output), _normalise_limits(limits), mixture)
        if space.total > largest:
            raise SpaceTooLarge(
                f"There are {space.total:,} deployments, more than the {largest:,} that are evaluated at once; limit "
                "batch or another field."
            )
        return space

    @cached_property
    def layouts(self) -> npt.NDArray[np.int64]:
        """(tensor_par, pipeline_par, expert_par, replicas) of every layout [layouts, 4]."""
        allow = {name: permits(self.limits, name) for name in LIMITED[:4]}
        found = []
        for t in divisors(self.num_procs):
            for p in divisors(self.num_procs // t):
                replicas = self.num_procs // t // p
                if not (allow["tensor_par"](t) and allow["pipeline_par"](p) and allow["replicas"](replicas)):
                    continue
                degrees = [e for e in divisors(t * replicas) if expert_layout(t, e, replicas)] if self.mixture else [1]
                found += [(t, p, e, replicas) for e in degrees if allow["expert_par"](e)]
        return np.array(found, np.int64).reshape(-1, 4)

    @cached_property
    def batches(self) -> npt.NDArray[np.int64]:
        """Batches per replica that are tried."""
        limit = self.limits.get("batch")
        if isinstance(limit, list):
            return np.array(limit, np.int64)
        permitted = permits(self.limits, "batch")
        return np.array([batch for batch in BATCHES if permitted(batch)], np.int64)

    def choices(self, name: str) -> tuple[Any, ...]:
        """Returns the values of a field with few values that are tried; 0 for the bits of the weights."""
        limit = self.limits.get(name)
        if limit is None:
            return DEFAULTS[name]
        permitted = permits(self.limits, name)
        return tuple(value for value in CHOICES[name] if permitted(value))

    @property
    def per_layout(self) -> int:
        """Deployments of one layout."""
        return len(self.batches) * int(np.prod([len(self.choices(name)) for name in CHOICES]))

    @property
    def total(self) -> int:
        """Deployments of the space."""
        return len(self.layouts) * self.per_layout

    def at(self, ids: npt.NDArray[np.int64]) -> Deployments:
        """Returns the deployments of ids, positions in the enumeration."""
        options = {name: self._positions(name) for name in CHOICES}
        sizes = (len(self.layouts), len(self.batches), *(len(values) for values in options.values()))
        layout, batch, *places = np.unravel_index(ids, sizes)
        chosen = {name: values[place] for (name, values), place in zip(options.items(), places, strict=True)}
        for name in ("attention_bits", "compute_bits"):
            chosen[name] = np.where(chosen[name] == 0, chosen["weight_bits"], chosen[name])
        t, p, e, replicas = self.layouts[layout].T.astype(np.float64)
        columns = {
            "tensor_par": t,
            "pipeline_par": p,
            "expert_par": e,
            "replicas": replicas,
            "batch": self.batches[batch],
            **chosen,
            "prompt": np.full(len(ids), self.prompt),
            "output": np.full(len(ids), self.output),
        }
        return Deployments(**{name: np.asarray(column, np.float64) for name, column in columns.items()})

    def _positions(self, name: str) -> npt.NDArray[np.int64]:
        """Return the values of a field that are tried, words as positions."""
        values = self.choices(name)
        return np.array([WORDS[name].index(value) for value in values] if name in WORDS else values, np.int64)


def _normalise_limits(limits: Mapping[str, Any] | None) -> dict[str, Any]:
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise ServingLimitError(f"Limits must map field names to values, not be {type(limits).__name__}.")
    result: dict[str, Any] = {}
    for name, limit in limits.items():
        if name not in LIMITED:
            raise ServingLimitError(
                f"There is no limit on {shown(name)}{did_you_mean(str(name), LIMITED)}; limits can be set on "
                f"{', '.join(LIMITED)}."
            )
        if limit is not None:
            result[name] = _normalise_limit(name, limit)
    return result


def _normalise_limit(name: str, limit: Any) -> Any:
    if isinstance(limit, Mapping):
        if name in WORDS or not limit or set(limit) - {"min", "max"}:
            raise ServingLimitError(f"The limit on {name} is {shown(limit)}; a range has min, max or both.")
        low, high = _check_value(name, limit.get("min", 0)), _check_value(name, limit.get("max", LARGEST))
        if low > high:
            raise ServingLimitError(f"The limit on {name} goes from {low} to {high}; min must not exceed max.")
        return {"min": low, "max": high}
    values = list(limit) if isinstance(limit, list | tuple | set | frozenset | range) else [limit]
    if not values:
        raise ServingLimitError(f"The limit on {name} is an empty list; leave it out to allow everything.")
    return sorted({_check_value(name, value, choice=True) for value in values})


def _check_value(name: str, value: Any, *, choice: bool = False) -> Any:
    if isinstance(value, np.integer):
        value = int(value)
    if name in WORDS:
        if not isinstance(value, str) or value not in WORDS[name]:
            raise ServingLimitError(f"{name} cannot be {shown(value)}; it is one of {', '.join(WORDS[name])}.")
        return value
    if choice and name in CHOICES and not (isinstance(value, int) and value in CHOICES[name]):
        raise ServingLimitError(f"{name} cannot be {shown(value)}; it is one of {', '.join(map(str, CHOICES[name]))}.")
    low = 1 if choice else 0
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= LARGEST:
        raise ServingLimitError(f"{name} cannot be {shown(value)}; it is a whole number from {low} to {LARGEST:,}.")
    return value
