"""Reading training logs: one run per log, from the arguments that frameworks print and their lines per step.

Read are Megatron-LM, NeMo, Megatron-Bridge, torchtitan and PyTorch Lightning's progress bar. The time of a step is the
median over the steps after the warm-up; one slow step (a checkpoint, an evaluation) does not move it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median, quantiles

from engine.calibrate.log_fields import ARGUMENTS, fields_of

__all__ = ["Log", "looks_like_log", "read_log"]

WARM_UP = 0.2
"""Share of the steps at the beginning that are not counted. Source: stated by us."""
MOST_WARM_UP = 20
"""Most steps at the beginning that are not counted. Source: stated by us."""
UNSTEADY = 0.1
"""Spread between quartiles over the median from which a log is called unsteady. Source: stated by us."""
LONGEST_LINE = 20_000
"""Longest part of a line that is read [characters]; a Namespace of arguments has about 8,000."""

# Lengths are bounded, so that no line takes long to match.
_VALUE = r"['\"]?([A-Za-z0-9_.+-]{0,80}[A-Za-z0-9_+-])"
_FLAG = re.compile(r"(?:^|\s)--([a-z0-9][a-z0-9-]{0,60})(?:[= ]+(?!-)" + _VALUE + r")?")
_DOTTED = re.compile(r"(?:^|[\s:\]])([a-z][a-z0-9_]{0,60}) \.{2,60} ?" + _VALUE)
_PAIR = re.compile(
    r"(?:^|[\s,({\[|>])['\"]?([A-Za-z][A-Za-z0-9_]{0,60}(?:[ -][a-z]{1,20}){0,4})['\"]?\s{0,8}[=:]\s{0,8}" + _VALUE
)
_LISTS = ("recompute_modules", "cp_comm_type")
_LIST = re.compile(
    rf"({'|'.join(_LISTS)})['\"]?[ .=:]{{1,80}}\[([a-z0-9_+, '\"]{{1,200}})\]"
    rf"|--({'|'.join(_LISTS).replace('_', '-')})[= ]([a-z0-9_+ ]{{1,200}}?)(?= *(?:[-\\|&>;]|\d>|$))"
)
"""Arguments that are lists."""
_NEW_VOCABULARY = re.compile(r"padded vocab \(size: \d+\) with \d+ dummy tokens \(new size: (\d+)\)")
_NOISE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

_NUMBER = r"(?<![0-9.])([0-9]{1,15}(?:,[0-9]{3}){0,4}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,3})?)"
_SECONDS: tuple[tuple[re.Pattern[str], float], ...] = (
    (re.compile(r"elapsed time per iteration \(ms\): " + _NUMBER), 1e-3),
    (re.compile(r"elapsed time per iteration \(s\): " + _NUMBER), 1.0),
    (re.compile(r"train_step_timing in s[=: ]+" + _NUMBER), 1.0),
    (re.compile(r"Step Time ?: ?" + _NUMBER + r" ?s"), 1.0),
)
_PROGRESS = re.compile(_NUMBER + r"(s/it|it/s)\b")
_TOKENS = re.compile(r"\btps: ?" + _NUMBER)
_BATCH = re.compile(r"global batch size: +(\d+)|global_batch_size: (\d+)")
_MEGABYTES = re.compile(r"max allocated: " + _NUMBER)
_GIBIBYTES = re.compile(r"\bmemory: +" + _NUMBER + r"GiB")
_FRAMEWORKS = (
    (r"train_step_timing|nemo", "NeMo"),
    (r"Step Time ?:", "Megatron-Bridge"),
    (r"\btps: ?\d", "torchtitan"),
    (r"elapsed time per iteration", "Megatron-LM"),
)


@dataclass(frozen=True, slots=True)
class Log:
    """A run read from a log: fields in the schema of `runs.csv` as text, and remarks about how they were read."""

    name: str
    fields: dict[str, str]
    remarks: tuple[str, ...]


def looks_like_log(text: str) -> bool:
    """Return True if a text has a line of a training step; tables of runs have none.

    Args:
        text: content of a file.
    """
    start = text[:2_000_000]
    return any(pattern.search(start) for pattern, _ in _SECONDS) or bool(
        _TOKENS.search(start) or _PROGRESS.search(start)
    )


def read_log(text: str, name: str) -> Log:
    """Returns the run that a log is of. Nothing raises: what the log does not say is not in the fields.

    Args:
        text: content of a file.
        name: of the file.
    """
    given: dict[str, str] = {}
    seconds: dict[int, list[float]] = {}
    progress: list[float] = []
    tokens: list[float] = []
    batches: list[str] = []
    memory = 0.0
    for whole in text.splitlines():
        line = _NOISE.sub("", whole[:LONGEST_LINE])
        step = False
        for place, (pattern, scale) in enumerate(_SECONDS):
            for found in pattern.findall(line):
                seconds.setdefault(place, []).append(scale * _parse_float(found))
                step = True
        tokens += [_parse_float(found) for found in _TOKENS.findall(line)]
        for number, unit in _PROGRESS.findall(line):
            value = _parse_float(number)
            progress.append(value if unit == "s/it" or value == 0 else 1.0 / value)
        batches += [first or second for first, second in _BATCH.findall(line)] if step else []
        memory = max(
            [
                memory,
                *(_parse_float(found) / 1024.0 for found in _MEGABYTES.findall(line)),
                *(_parse_float(found) for found in _GIBIBYTES.findall(line)),
            ]
        )
        if not step:
            _read_arguments(line, given)
    fields = fields_of(given)
    remarks = []
    if batches:
        fields["gbs"] = batches[-1]
    times = next((values for _, values in sorted(seconds.items())), [])
    if not times and progress and not tokens:
        each = max(_parse_float(given.get("accumulate_grad_batches", "1")), 1.0)
        times = [each * value for value in progress]
        remarks.append("The time per step is the progress bar's, which also counts what runs between steps")
    if times:
        counted = _select_steady(times, len(batches) == len(times) and len(set(batches)) > 1, batches)
        fields["step_time_s"] = repr(median(counted))
        remarks.append(_describe_steps(counted, len(times)))
    elif tokens:
        counted = _select_steady(tokens, False, [])
        fields["tokens_per_s_per_gpu"] = repr(median(counted))
        remarks.append(_describe_steps(counted, len(tokens)))
    else:
        remarks.append("The log has no line with the time of a step")
    if memory > 0:
        fields["mem_gib"] = f"{memory:.3f}"
        fields["mem_kind"] = "max allocated"
    framework = next((word for pattern, word in _FRAMEWORKS if re.search(pattern, text)), "")
    return Log(name, {"id": name, "framework": framework, "source": "log", **fields}, tuple(remarks))


def _parse_float(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def _read_arguments(line: str, given: dict[str, str]) -> None:
    """Add the known arguments in a line; the last value of each counts."""
    if found := _NEW_VOCABULARY.search(line):
        given["padded_vocab_size"] = found[1]
    for pattern in (_DOTTED, _PAIR):
        for name, value in pattern.findall(line):
            key = re.sub(r"[ -]", "_", name).lower()
            if key in ARGUMENTS and key not in _LISTS:
                # Some print where a value comes from behind it: "8...........default".
                given[key] = value.split("..")[0].rstrip(".")
    for printed, words, flag, values in _LIST.findall(line):
        given[printed or flag.replace("-", "_")] = words or values
    for name, value in _FLAG.findall(line):
        key = name.replace("-", "_")
        if key in ARGUMENTS and key not in _LISTS:
            given[key] = value or "True"


def _select_steady(values: list[float], ramping: bool, batches: list[str]) -> list[float]:
    """The measurements after the warm-up; while the batch still grew, only those with the last batch size."""
    if ramping:
        values = [value for value, batch in zip(values, batches, strict=True) if batch == batches[-1]]
    skipped = min(int(WARM_UP * len(values) + 0.999), MOST_WARM_UP) if len(values) > 2 else len(values) - 1
    return values[skipped:] or values


def _describe_steps(counted: list[float], steps: int) -> str:
    many = f"Median of {len(counted):,} of {steps:,} steps" if steps > 1 else "Only one step"
    if len(counted) >= 4:
        quarter = quantiles(counted, n=4)
        spread = (quarter[2] - quarter[0]) / max(median(counted), 1e-12)
        if spread > UNSTEADY:
            return f"{many}; they are unsteady, half of them differ by more than {100 * spread / 2:.0f} %"
    return many
