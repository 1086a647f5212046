"""Settings of a run, read key by key with the defaults of its framework, and the lists of unread keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from engine.launch.contract import LaunchError, LaunchInputs, UnknownValue
from engine.launch.megatron.arguments import Arguments, Dialect
from engine.launch.megatron.constraints import check_arguments
from engine.launch.megatron.reading import read_execution
from engine.launch.post_training.contract import LAYOUT_FIELDS, RUN_SETTINGS, RunReading
from engine.launch.report import OPEN, OpenValue, Report
from engine.launch.serving_engines.model_names import library_name
from engine.launch.settings import LaunchSettings
from engine.launch.shapes import shape_of
from models import load

__all__ = ["BACKEND", "LayoutArguments", "RunReader", "RunSettings", "check_share"]

BACKEND: Final = Dialect("the framework", False, "bfloat16", False, True, True)
"""Megatron-Core as frameworks of reinforcement learning use it: arithmetic in BF16, the model from its checkpoint."""
_OFF: Final[tuple[Any, ...]] = (None, False, "", 0, -1, "0", "0.0", "-1", "False", "false", "null", "None", [], {})
"""Values that leave a key without effect."""
MOST_NAMED: Final = 40
"""Keys of each list that are named."""


class RunSettings(LaunchSettings):
    """Settings by key; absent ones have the framework's default, and say so."""

    def __init__(self, given: Mapping[str, Any], report: Report, defaults: Mapping[str, Any]) -> None:
        """Store keys and defaults.

        Args:
            given: values by key.
            report: records the keys that are read.
            defaults: values of the framework by key.
        """
        super().__init__(given, report)
        self.defaults = defaults

    def is_stated(self, name: str) -> bool:
        """Return whether a key is set, be it to nothing."""
        return name in self.given

    def _value(self, name: str) -> Any:
        value = super()._value(name)
        if value is not None or name in self.given:
            return value
        below = next((key for key in self.given if key.startswith(f"{name}.")), None)
        if below is not None and name in self.defaults:  # a group where one value belongs: not the default
            return UnknownValue(f"{below} instead of {name}")
        return self.defaults.get(name)


class LayoutArguments(Arguments):
    """Arguments of Megatron-Core; absent ones have the default of the framework around it."""

    def __init__(
        self, said: Mapping[str, Any], defaults: Mapping[str, Any], names: Mapping[str, str], report: Report
    ) -> None:
        """Store the values.

        Args:
            said: values by destination.
            defaults: the framework's own defaults by destination.
            names: keys by destination.
            report: records the values that are read.
        """
        super().__init__(said, BACKEND, names, report)
        self._defaults = defaults

    def given(self, destination: str) -> Any:
        """Return the value that was given, else the framework's own default."""
        value = super().given(destination)
        return self._defaults.get(destination) if destination not in self._said else value


class RunReader:
    """One reading: settings into a report, the layout into another, and both into a `RunReading`."""

    def __init__(self, title: str, given: Mapping[str, Any], asked: LaunchInputs, defaults: Mapping[str, Any]) -> None:
        """Start a reading.

        Args:
            title: name and version of the framework, of whose defaults origins speak.
            given: values by key.
            asked: what the caller states.
            defaults: values of the framework by key.
        """
        self.asked = asked
        self.report = Report(title, asked)
        self.settings = RunSettings(given, self.report, defaults)
        self.layout = Report(title, asked)
        self.replicas: dict[str, Any] = {}
        self.checkpoint = ""
        self.gpus_per_node: int | None = None
        self.gpus_train: int | None = None

    def say(self, path: str, rule: Callable[[], Any], words: str = "") -> None:
        """Set a setting to the result of a rule; `OPEN` or None leaves it to other sources.

        Args:
            path: one of `RUN_SETTINGS`.
            rule: reads keys and other settings.
            words: what states the value, where it follows from other settings.
        """

        def known() -> Any:
            found = rule()
            is_open = found is None or (isinstance(found, list) and None in found)
            return OPEN if is_open else found

        self.report.say(path, known, words)

    def known(self, path: str) -> Any:
        """Return a setting, None where it is open."""
        return self.report.execution.known(path)

    def value_of(self, rule: Callable[[], Any]) -> Any:
        """Return the result of a rule; None where something that it reads is not known.

        Args:
            rule: reads keys and settings.
        """
        try:
            return rule()
        except OpenValue:
            return None

    def hidden_value(self) -> UnknownValue | None:
        """Return the words that are not at hand and may set absent keys; None without any."""
        hidden = self.settings.hidden
        return hidden[0] if hidden and not self.asked.takes_defaults else None

    def read_replicas(self, *, pipeline: Callable[[], int], expert: Callable[[], int], pipeline_key: str) -> None:
        """Read the replicas of the rollout, after its tensor parallel degree and the GPUs.

        Args:
            pipeline: returns the stages of a replica.
            expert: returns the expert parallel degree of a replica.
            pipeline_key: that states the stages, for messages.
        """
        tensor, stages, experts = self.known("rollout.tensor_par"), self.value_of(pipeline), self.value_of(expert)
        if stages is not None and stages > 1:
            self.report.not_modelled(f"{pipeline_key} {stages}: the plan has replicas without a pipeline.")
        if not isinstance(tensor, list) or stages is None:
            return
        self.replicas |= {"tensor_par": tensor[0], "pipeline_par": stages}
        if experts is not None:
            self.replicas["expert_par"] = experts
        split, each = self.known("split"), tensor[0] * stages
        gpus = split[1] if isinstance(split, list) else self.known("num_procs")
        if not isinstance(gpus, int):
            return
        if gpus % each:
            self.report.refuse(f"{gpus:,} GPUs of the rollout are no multiple of {each:,}, a replica")
        else:
            self.replicas["replicas"] = gpus // each

    def read_model(self, key: str) -> None:
        """Read the checkpoint's name as a model of the library.

        Args:
            key: that names it.
        """

        def rule() -> Any:
            self.checkpoint = self.settings.word(key)
            found = library_name(self.checkpoint)
            if found is None:
                self.report.remark(f"{key} is {self.checkpoint[:100]}, no model of the library; name one.")
            return found or OPEN

        self.say("model", rule)
        named = self.known("model")
        if isinstance(named, str) and not self.asked.model:
            try:
                self.layout = Report(self.layout.title, _with_model(self.asked, shape_of(load(named))))
            except ValueError:
                self.report.remark(f"{named[:100]} is no model of the library.")

    def read_gpus(self, train: Callable[[], int], rollout: Callable[[], int] | None) -> None:
        """Read the GPUs of both sides, after the mode.

        Args:
            train: returns the GPUs that train.
            rollout: returns the GPUs that generate; None where both share them.
        """
        if rollout is None:
            self.say("num_procs", train)
            found = self.known("num_procs")
            self.gpus_train = found
            return
        self.say("split", lambda: [train(), rollout()])
        self.say("num_procs", lambda: sum(self.report.execution["split"]), "both pools together")
        split = self.known("split")
        self.gpus_train = split[0] if isinstance(split, list) and split and isinstance(split[0], int) else None

    def read_updates(self, batch: Callable[[], int], key: str, epochs: Callable[[], int] = lambda: 1) -> None:
        """Read the updates of a step from the samples of one.

        Args:
            batch: returns the samples of an update.
            key: that states it, for messages.
            epochs: returns how many times each sample is trained.
        """
        e = self.report.execution

        def rule() -> Any:
            samples, each = int(e["prompts"]) * int(e["group"]), batch()
            if samples % each:
                self.report.refuse(f"{key} is {each:,} samples, which do not divide the {samples:,} of a step")
                return OPEN
            return samples // each * epochs()

        self.say("updates", rule)

    def read_lengths(self, longest: Callable[[], int] | None, response: Callable[[], int | None]) -> None:
        """Read the cap of responses; prompts and mean responses are no matter of launch files.

        Args:
            longest: returns the longest prompt and response together; None where there is no such limit.
            response: returns the longest response; None where only both together are limited.
        """
        e = self.report.execution
        self.say("prompt_tokens", lambda: OPEN)
        self.say("response.mean", lambda: OPEN)

        def cap() -> int:
            own = response()
            if longest is None:
                assert own is not None
                return own
            both = longest()
            if own is not None and own < both:
                prompt = self.known("prompt_tokens")
                return own if not isinstance(prompt, int) else max(min(own, both - prompt), 1)
            return max(both - int(e["prompt_tokens"]), 1)

        self.say("response.cap", cap)

    def read_layout(self, said: Mapping[str, Any], defaults: Mapping[str, Any], names: Mapping[str, str]) -> None:
        """Read the training execution.

        Args:
            said: arguments of Megatron-Core by destination.
            defaults: the framework's own by destination.
            names: keys by destination.
        """
        origin = self.report.execution.origins.get("split") or self.report.execution.origins.get("num_procs")
        inputs = LaunchInputs(
            self.gpus_train,
            origin if self.gpus_train is not None else None,
            self.asked.origins,
            {name: value for name, value in self.asked.stated.items() if name in LAYOUT_FIELDS},
            self.layout.asked.model,
            self.asked.takes_defaults,
        )
        self.layout = Report(self.layout.title, inputs)
        # Batches are samples there and packs here: the updates are checked below.
        arguments = LayoutArguments(
            {
                **{name: value for name, value in said.items() if value is not None},
                "global_batch_size": UnknownValue("packs of an update"),
            },
            {"micro_batch_size": 1, **defaults},
            names,
            self.layout,
        )
        read_execution(arguments, self.layout)
        gpus = self.layout.execution.known("num_procs")
        if gpus and (reason := check_arguments(arguments, gpus)):
            self.layout.refuse(reason)
        samples = [self.known(path) for path in ("prompts", "group", "updates")]
        replicas = self.layout.execution.known("data_par")
        if replicas and all(isinstance(each, int) for each in samples) and samples[0] * samples[1] % samples[2] == 0:
            each = samples[0] * samples[1] // samples[2]
            if each % replicas:
                self.layout.refuse(f"{each:,} samples of an update are no multiple of {replicas:,} replicas")

    def name_rest(self, names: Mapping[str, str], without_effect: Iterable[str], also_read: Iterable[str] = ()) -> None:
        """Put the unread keys into their lists.

        Args:
            names: sentence by beginning of keys that change the run and have no setting here, where their value is on.
            without_effect: beginnings of keys that change no figure.
            also_read: keys that were read outside the settings.
        """
        read = {*also_read}
        left = [key for key in self.settings.rest() if key not in read]
        quiet = tuple(without_effect)
        effects: list[str] = []
        for key in left:
            sentence = next((text for start, text in names.items() if key.startswith(start)), None)
            value = self.settings.given[key]
            if sentence is not None and value not in _OFF:
                self.report.not_modelled(f"{key} {_shorten(value)}: {sentence}")
            elif sentence is not None or key.startswith(quiet):
                effects.append(key)
            else:
                self.report.unread(f"{key[:100]} is not known here.")
        self.report.without_effect(*effects)

    def reading(self, name: str, title: str, version: str) -> RunReading:
        """Return everything as a `RunReading`.

        Args:
            name: of the framework.
            title: of it.
            version: as of which it was read.
        """
        e, train = self.report.execution, self.layout.execution
        settings = {path: e.values_known[path] for path in RUN_SETTINGS if path in e.values_known}
        layout = dict(train.values_known)
        origins = {path: e.origins[path] for path in RUN_SETTINGS if path in e.origins}
        origins |= {f"training.{each}": origin for each, origin in train.origins.items()}
        lists = {
            which: tuple(dict.fromkeys((*self.report.listed(which), *self.layout.listed(which))))
            for which in ("not_modelled", "without_effect", "unread", "remarks")
        }
        for which, sentences in lists.items():
            if len(sentences) > MOST_NAMED and which in ("unread", "without_effect"):
                lists[which] = (*sentences[:MOST_NAMED], f"and {len(sentences) - MOST_NAMED} more")
        return RunReading(
            name,
            title,
            version,
            settings,
            layout,
            dict(self.replicas),
            self.checkpoint,
            origins,
            **lists,
            refused=self.report.refused or self.layout.refused,
            gpus_per_node=self.gpus_per_node,
        )


def _with_model(asked: LaunchInputs, shape: Mapping[str, Any]) -> LaunchInputs:
    return LaunchInputs(asked.gpus, asked.gpus_origin, asked.origins, asked.stated, shape, asked.takes_defaults)


def _shorten(value: Any) -> str:
    return re.sub(r"\s+", " ", str(value))[:60]


def check_share(value: float | None, key: str) -> float | None:
    """Return a share of memory. Raises `LaunchError` for an invalid one."""
    if value is not None and not 0.0 < value <= 1.0:
        raise LaunchError(f"{key} is {value:g}; it must be above 0 and at most 1.")
    return value
