"""A whole training run: wall-clock time with failures, processor-hours, cost, energy, and what each is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from engine.economics.checkpoints import Parts, daly_interval, split_expected_time, young_interval
from engine.economics.inputs import DerivedError, RunInputs
from engine.economics.quantities import energy_kwh, processor_hours, seconds_for_tokens
from models.documents import shown

__all__ = ["OUTPUTS", "Output", "TrainingRun", "training_run"]

GIGA: Final = 1e9
"""Bytes of a gigabyte, as storage is sold."""
HOUR: Final = 3600.0
"""Seconds of an hour [s/h]."""
BILLION: Final = 1e9
"""Tokens that cost and energy per token refer to [tokens]."""
LEAST_GOODPUT: Final = 1e-3
"""Below this a run is refused: it would all but never end. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class Output:
    """One figure of a training run."""

    name: str
    label: str
    unit: str
    formula: str
    source: str = ""


OUTPUTS: Final[dict[str, Output]] = {
    one.name: one
    for one in (
        Output("compute_s", "Without failures", "s", "tokens ÷ throughput"),
        Output(
            "system_mtbf_s",
            "Time between failures of the run",
            "s",
            "time between failures per processor ÷ processors",
            "independent failures, each of which stops the run",
        ),
        Output(
            "checkpoint_bytes",
            "Checkpoint per processor",
            "bytes",
            "parameters · bytes per parameter ÷ processors",
            "state written once, divided among all processors",
        ),
        Output(
            "checkpoint_s", "Writing a checkpoint", "s", "checkpoint per processor ÷ storage bandwidth per processor"
        ),
        Output("young_s", "Optimal interval, first order", "s", "√(2 · δ · M)", "Young 1974"),
        Output(
            "daly_s",
            "Optimal interval",
            "s",
            "√(2 · δ · M) · (1 + √(δ ÷ 2M) ÷ 3 + δ ÷ 18M) − δ",
            "Daly 2006, equation 37",
        ),
        Output("interval_s", "Interval taken", "s", "the optimal interval unless one is given; at most the whole run"),
        Output("failures", "Failures expected", "", "wall-clock time ÷ M"),
        Output(
            "wall_s",
            "Wall-clock time",
            "s",
            "M · exp(R ÷ M) · (exp((τ + δ) ÷ M) − 1) · time without failures ÷ τ",
            "Daly 2006, equation 20",
        ),
        Output("goodput", "Goodput", "fraction", "time without failures ÷ wall-clock time"),
        Output("proc_hours", "Processor-hours", "h", "processors · wall-clock time"),
        Output("usd", "Cost", "USD", "processor-hours · price"),
        Output(
            "energy_kwh", "Energy", "kWh", "processors · wall-clock time · design power · draw over design power · PUE"
        ),
    )
}
"""Every figure with its formula: δ writing a checkpoint, M time between failures of the run, R restart, τ interval."""


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The figures of a training run; `OUTPUTS` has their formulas. Money and energy are of the wall-clock time."""

    inputs: RunInputs
    num_procs: int
    parameters: float
    tokens_per_s: float
    """Rate of the whole system while it computes [tokens/s]."""
    compute_s: float
    system_mtbf_s: float
    checkpoint_bytes: float
    checkpoint_s: float
    young_s: float
    daly_s: float
    interval_s: float
    parts: Parts
    wall_s: float
    proc_hours: float
    usd: tuple[float, float] | None
    """(lowest, highest); `None` without a price."""
    energy_kwh: float | None
    """`None` without a power."""

    @property
    def goodput(self) -> float:
        """Share of the wall-clock time that computes what counts, 0 to 1."""
        return self.compute_s / self.wall_s

    @property
    def failures(self) -> float:
        """Failures expected during the run."""
        return self.parts.failures

    @property
    def tokens_per_s_per_proc(self) -> float:
        """Rate of one processor while it computes [tokens/s]."""
        return self.tokens_per_s / self.num_procs

    @property
    def usd_per_billion(self) -> tuple[float, float] | None:
        """Cost of 1e9 tokens [USD], (lowest, highest); `None` without a price."""
        share = BILLION / self.inputs.tokens
        return None if self.usd is None else (self.usd[0] * share, self.usd[1] * share)

    @property
    def kwh_per_billion(self) -> float | None:
        """Energy of 1e9 tokens [kWh]; `None` without a power."""
        return None if self.energy_kwh is None else self.energy_kwh * BILLION / self.inputs.tokens


def training_run(inputs: RunInputs, *, tokens_per_s: float, num_procs: int, parameters: float) -> TrainingRun:
    """Returns the figures of training `inputs.tokens` tokens.

    Args:
        inputs: tokens, failures, storage, price and power.
        tokens_per_s: rate of the whole system while it computes [tokens/s].
        num_procs: processors of the system.
        parameters: all of the model, of experts every one, since a checkpoint holds them.

    Raises `DerivedError` for a rate, a number of processors or of parameters that cannot be, and where failures come so
    fast that the run would all but never end.
    """
    for name, value, low in (
        ("tokens_per_s", tokens_per_s, 0.0),
        ("parameters", parameters, 0.0),
        ("num_procs", num_procs, 0.0),
    ):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and low < value <= 1e18):
            raise DerivedError(f"{name} is {shown(value)}; it must be a number above {low:g} and at most 1e+18.")
    compute = seconds_for_tokens(inputs.tokens, tokens_per_s)
    # Failures of processors are independent: M of the run is that of one over their number.
    mtbf = inputs.mtbf_h * HOUR / num_procs
    size = parameters * inputs.bytes_per_parameter / num_procs
    write = size / (inputs.storage_gb_per_s * GIGA)
    young, daly = float(young_interval(write, mtbf)), float(daly_interval(write, mtbf))
    # A run that ends sooner writes one checkpoint, at its end.
    interval = min(daly if inputs.interval_s is None else inputs.interval_s, compute)
    found = split_expected_time(compute, interval, write, inputs.restart_s, mtbf)
    # Expected failures times the mean time between them is the whole run.
    wall = found.failures * mtbf
    if not math.isfinite(wall) or compute < LEAST_GOODPUT * wall:
        raise DerivedError(
            f"The run would all but never end: {num_procs:,} processors fail every {mtbf:.3g} s on average, while "
            f"{interval:.3g} s of computing, {write:.3g} s of writing and {inputs.restart_s:.3g} s of restarting have "
            "to pass between failures; raise mtbf_h or storage_gb_per_s, or lower restart_s or interval_s."
        )
    hours = processor_hours(float(num_procs), wall)
    usd = None
    if inputs.usd_low is not None and inputs.usd_high is not None:
        usd = hours * inputs.usd_low, hours * inputs.usd_high
    energy = None
    if inputs.power_w is not None:
        energy = energy_kwh(float(num_procs), wall, inputs.power_w, inputs.power_share, inputs.pue)
    return TrainingRun(
        inputs=inputs,
        num_procs=num_procs,
        parameters=parameters,
        tokens_per_s=tokens_per_s,
        compute_s=compute,
        system_mtbf_s=mtbf,
        checkpoint_bytes=size,
        checkpoint_s=write,
        young_s=young,
        daly_s=daly,
        interval_s=interval,
        parts=found,
        wall_s=wall,
        proc_hours=hours,
        usd=usd,
        energy_kwh=energy,
    )
