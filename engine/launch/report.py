"""Collects the results of reading or writing a configuration, with the source of every value.

A value gets into a `LaunchReading` only through `Report.say` and `Report.describe`, which run a rule and record its
inputs: flags from `Arguments` and `Settings`, and fields that were read before. They give the origin of the value. A
rule with an unknown value or an open field among its inputs leaves its own field open; it cannot fill it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchInputs, LaunchReading, Origin, UnknownValue
from engine.launch.shapes import SHAPE_WORDS
from models.documents import shown

__all__ = ["LIST_TITLES", "OPEN", "OpenValue", "Report", "WatchedFields", "parse_flag", "parse_integer"]

_ON, _OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
LIST_TITLES: Final[Mapping[str, str]] = {
    "not_expressible": "Not supported by this framework",
    "not_modelled": "Set, but without effect on the prediction",
    "remarks": "Remarks",
}
"""Headings of the lists of a written configuration, in files, commands and pages."""
OPEN: Final = object()
"""Result of a rule if other sources have to give the value."""
MODEL_SHAPE: Final = "the model's shape"


def parse_flag(value: Any, name: str) -> bool:
    """Returns a truth value as configurations write it: True, "true", "yes", 1; None is false.

    Args:
        value: from the configuration.
        name: of the flag, for the message.

    Raises `LaunchError` for anything else.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    word = str(value).strip().lower()
    if word in _ON:
        return True
    if word in (*_OFF, "none", "null", ""):
        return False
    raise LaunchError(f"{name} is {shown(value)}; it must be true or false.")


def parse_integer(value: Any, name: str, least: int = 1) -> int:
    """Returns a whole number as configurations write it: 8, "8", 8.0.

    Args:
        value: from the configuration.
        name: of the flag, for the message.
        least: smallest number that makes sense.

    Raises `LaunchError` for anything else.
    """
    try:
        number = float(str(value).strip()[:400]) if not isinstance(value, bool) else float("nan")
        if number == int(number) and least <= number <= 2**31:
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise LaunchError(f"{name} is {shown(value)}; it must be a whole number from {least}.")


class OpenValue(Exception):  # noqa: N818 - a signal between a reader and its report, never an error of the user
    """Raised when a rule reads an unknown value."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin.words)
        self.origin = origin


@dataclass
class _Trail:
    """Inputs that a rule has read."""

    stated: dict[str, Origin] = field(default_factory=dict)
    """Flags that were stated, by name."""
    has_default: bool = False
    fields: list[Origin] = field(default_factory=list)


class WatchedFields(Mapping[str, Any]):
    """Values by field, as rules see them: asking for an open field leaves what depends on it open, too."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.values_known: dict[str, Any] = {}
        self.origins: dict[str, Origin] = {}

    def __getitem__(self, name: str) -> Any:
        origin = self.origins.get(name)
        if origin is not None and name not in self.values_known:
            raise OpenValue(origin)
        value = self.values_known[name]
        if origin is not None:
            self._report.saw_field(origin)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_known)

    def __len__(self) -> int:
        return len(self.values_known)

    def known(self, name: str) -> Any:
        """Returns a value, None where the field is open or absent; for remarks, never for values."""
        return self.values_known.get(name)


class Report:
    """Results so far: fields, model, and the lists of a `LaunchReading` or `Written`, each entry once."""

    def __init__(self, title: str = "the framework", asked: LaunchInputs | None = None) -> None:
        self.title = title
        self.asked = asked or LaunchInputs()
        self.execution, self.model = WatchedFields(self), WatchedFields(self)
        self.lists: dict[str, dict[str, None]] = {}
        self.refused = ""
        self.elsewhere: Origin | None = None
        """Source outside the given texts that replaces the framework's defaults."""
        self._has_named = False
        self._trails: list[_Trail] = []
        for word, value in self.asked.model.items():
            self.model.values_known[word] = value
            self.model.origins[word] = Origin("stated", "--model")

    def start_model(self, shape: Mapping[str, Any], origin: Origin) -> None:
        """Use a named model's shape; values stated next to the name override it.

        Args:
            shape: values by word.
            origin: origin of the name.
        """
        self._has_named = True
        for word, value in shape.items():
            if word not in self.asked.model:
                self.model.values_known[word] = value
                self.model.origins[word] = origin

    def open_model(self, origin: Origin) -> None:
        """Leaves every word of the model's shape open, as the name that it stands behind is not known.

        Args:
            origin: of the name.
        """
        self.remark(f"{origin.words} is not known; give the model beside it.")
        for word in SHAPE_WORDS:
            if word != "seq" and not self.asked.model:
                self.model.origins[word] = origin

    # Watching.

    def saw_flag(self, name: str, is_stated: bool) -> None:
        """Notes that a rule asks for a flag.

        Args:
            name: of the flag, as the configuration writes it.
            is_stated: whether it is stated there; else its default counts.
        """
        if self._trails and is_stated:
            self._trails[-1].stated[name] = self.origin_of(name)
        elif self._trails:
            self._trails[-1].has_default = True

    def origin_of(self, name: str) -> Origin:
        """Return the place of a flag.

        Args:
            name: of the flag, which is stated.
        """
        return self.asked.origins.get(name) or Origin("stated", name)

    def saw_field(self, origin: Origin) -> None:
        """Notes that a rule asks for a field that was read before."""
        if self._trails:
            self._trails[-1].fields.append(origin)

    def unknown(self, name: str, value: UnknownValue) -> OpenValue:
        """Returns the signal that a flag has no value that is known.

        Args:
            name: of the flag.
            value: its stand-in.
        """
        words = value.expression if name == value.expression else f"{name} {value.expression}"
        return OpenValue(Origin("unknown", words[:160], value.file, value.line))

    # Values.

    def say(self, names: str | tuple[str, ...], rule: Callable[[], Any], words: str = "") -> None:
        """Sets fields of the execution to what a rule returns, a tuple for several; `OPEN` leaves a field open.

        Args:
            names: fields.
            rule: reads flags and fields.
            words: what states the value, where it follows from other fields.
        """
        self._settle(self.execution, (names,) if isinstance(names, str) else names, rule, words)

    def say_if_any(self, name: str, rule: Callable[[], Any], words: str = "") -> None:
        """Set a field as `say` does; None leaves the field to its default of the same meaning.

        Args:
            name: field.
            rule: reads flags and fields.
            words: what states the value, where it follows from other fields.
        """
        self.say(name, rule, words)
        if name in self.execution.values_known and self.execution.values_known[name] is None:
            del self.execution.values_known[name], self.execution.origins[name]

    def describe(self, names: str | tuple[str, ...], rule: Callable[[], Any], words: str = "") -> None:
        """Set words of the model's shape to the results of a rule, as `say` does; None leaves a word out.

        A model that the caller names counts more than the configuration, but for the sequence length.

        Args:
            names: words of `engine.launch.shapes`.
            rule: reads flags and words.
            words: what states the value, where it follows from others.
        """
        self._settle(self.model, (names,) if isinstance(names, str) else names, rule, words)

    def note(self, rule: Callable[[], None]) -> None:
        """Run a rule that only adds to lists; an open value becomes a remark.

        Args:
            rule: reads flags and fields.
        """
        self._trails.append(_Trail())
        try:
            rule()
        except OpenValue as signal:
            if signal.origin.words and not self._is_about_field(signal.origin):
                self.remark(f"{signal.origin.words} is not known; what depends on it is not checked.")
        finally:
            self._trails.pop()

    def _is_about_field(self, origin: Origin) -> bool:
        known = (*self.execution.origins.values(), *self.model.origins.values())
        return any(origin is each or origin == each for each in known)

    def _settle(self, fields: WatchedFields, names: tuple[str, ...], rule: Callable[[], Any], words: str) -> None:
        trail = _Trail()
        self._trails.append(trail)
        try:
            found = rule()
            values = found if len(names) > 1 and isinstance(found, tuple) else (found,) * len(names)
            origin = self._origin(trail, words)
        except OpenValue as signal:
            values, origin = (OPEN,) * len(names), signal.origin
        finally:
            self._trails.pop()
        if self.elsewhere is not None and origin.kind == "default" and not (fields is self.model and self._has_named):
            values, origin = (OPEN,) * len(names), self.elsewhere
        for name, value in zip(names, values, strict=True):
            self._put(fields, name, value, origin)

    def _origin(self, trail: _Trail, words: str) -> Origin:
        if trail.stated:
            first = next(iter(trail.stated.values()))
            words = ", ".join(each.words or name for name, each in trail.stated.items())
            return Origin("stated", words, first.file, first.line)
        if words and not trail.has_default and any(each.kind == "stated" for each in trail.fields):
            return Origin("stated", words)
        return Origin("default", f"default of {self.title}")

    def _put(self, fields: WatchedFields, name: str, value: Any, origin: Origin) -> None:
        stated = self.asked.stated
        if name in stated:
            if fields.values_known.get(name) != stated[name]:
                fields.values_known[name] = stated[name]
            fields.origins[name] = Origin("stated", "--set")
            return
        if fields is self.model and self.asked.model:
            known = self.asked.model.get(name)
            if name == "seq" and value is not OPEN and value is not None and origin.kind == "stated":
                pass
            else:
                if value is not OPEN and value is not None and origin.kind == "stated" and known not in (value, None):
                    self.remark(
                        f"{origin.words} says {SHAPE_WORDS.get(name, name)} {shown(value)}; the model that is "
                        f"named has {shown(known)}, which counts."
                    )
                return
        before = fields.origins.get(name)
        if fields is self.model and (
            value is None or (origin.kind == "default" and before is not None and before.kind == "stated")
        ):
            return
        if value is OPEN:
            fields.values_known.pop(name, None)
            fields.origins[name] = origin if origin.kind == "unknown" else Origin("unknown")
            if fields is self.execution:
                self.leave(name)
            return
        fields.values_known[name] = value
        fields.origins[name] = origin

    def told_gpus(self) -> Any:
        """Return the number of GPUs stated outside the flags; `OPEN` without one."""
        if self.asked.gpus is None:
            origin = self.asked.gpus_origin
            if origin is not None and origin.kind == "unknown":
                raise OpenValue(origin)
            return OPEN
        name = "gpus"
        origin = self.asked.gpus_origin or Origin("stated", "number of GPUs")
        if self._trails:
            self._trails[-1].stated[origin.words or name] = origin
        return self.asked.gpus

    # Lists.

    def _add(self, which: str, words: Iterable[str]) -> None:
        self.lists.setdefault(which, {}).update(dict.fromkeys(words))

    def not_modelled(self, *words: str) -> None:
        """Record an option without a field here."""
        self._add("not_modelled", words)

    def not_expressible(self, *words: str) -> None:
        """Notes what the framework has no place for."""
        self._add("not_expressible", words)

    def without_effect(self, *words: str) -> None:
        """Note settings without effect on the prediction."""
        self._add("without_effect", words)

    def unread(self, *words: str) -> None:
        """Note unknown or invalid settings."""
        self._add("unread", words)

    def remark(self, *words: str) -> None:
        """Notes what was read or written as the nearest, or corrected."""
        self._add("remarks", words)

    def leave(self, *words: str) -> None:
        """Record fields that other sources must specify."""
        self._add("left", words)

    def refuse(self, reason: str) -> None:
        """Notes why the framework would not start this; the first reason counts."""
        self.refused = self.refused or reason.rstrip(".")

    def listed(self, which: str) -> tuple[str, ...]:
        """Returns a list, in the order in which it was noted."""
        return tuple(self.lists.get(which, ()))

    def reading(self, framework: str, version: str, flags: Mapping[str, Any]) -> LaunchReading:
        """Returns everything as a `LaunchReading`.

        Args:
            framework: name of it.
            version: as of which it was read.
            flags: what was read.
        """
        execution, model = dict(self.execution.values_known), dict(self.model.values_known)
        for name in self.asked.stated:
            if name in execution:
                self.lists.get("left", {}).pop(name, None)
        open_words = [word for word in self.model.origins if word not in model]
        if "layers" in open_words or len(open_words) > 2:
            self.leave(MODEL_SHAPE)
        else:
            self.leave(*open_words)
        if self.asked.model:
            for each in (MODEL_SHAPE, "model shape"):
                self.lists.get("left", {}).pop(each, None)
        return LaunchReading(
            framework,
            version,
            execution,
            model,
            execution.get("num_procs"),
            self.listed("not_modelled"),
            self.listed("unread"),
            self.listed("remarks"),
            self.listed("left"),
            self.refused,
            dict(flags),
            {**self.model.origins, **self.execution.origins},
            self.listed("without_effect"),
            title=self.title,
        )
