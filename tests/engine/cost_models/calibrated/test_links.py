"""Time on the links: the whole of what is sent, of which the rest of the model shows a part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.columns import fields_of
from engine.cost_models.calibrated import parameters, parameters_of
from engine.cost_models.calibrated.fields import case_of_fields, read
from engine.cost_models.calibrated.physics.communication.expert_exchange import exchange
from engine.cost_models.calibrated.physics.communication.links import link_times
from engine.cost_models.calibrated.physics.layers.block import tensor_exchange
from engine.cost_models.calibrated.physics.layers.rates import sustained_rates
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import message_time
from tests.engine.cost_models.calibrated.cases import EXPERTS, case

P = parameters()
EXPOSED = {
    "tp": "tp_comm_exposed_time",
    "recomm": "recomm_exposed_time",
    "cp": "cp_comm_exposed_time",
    "ep": "ep_comm_exposed_time",
    "pp": "pp_comm_exposed_time",
    "dp": "dp_comm_exposed_time",
}


def test_overlap_does_not_shorten_what_is_sent() -> None:
    """32 blocks and 4 microbatches, each with two exchanges forward and two backward."""
    one = case(tensor_par=8.0, overlap_tensor=1.0)
    rates = sustained_rates(one.accelerator, one.software.age_years, P)
    assert link_times(one, P)["tp"] == pytest.approx(4 * 32 * 4 * tensor_exchange(one, rates, P))
    apart = case(EXPERTS, expert_par=8.0, overlap_expert=0.0)
    sent = exchange(apart, rates, P)  # of the 31 blocks with experts: there and back, forward and backward
    assert link_times(case(EXPERTS, expert_par=8.0, overlap_expert=1.0), P)["ep"] == pytest.approx(4 * 31 * 4 * sent)


def test_the_ring_passes_keys_and_values_three_times() -> None:
    """Forward once, backward twice the volume; nothing of the 600 us or so of attention comes off."""
    one = case(context_par=4.0)
    time = 3 * 2 * 32 * 128 * 1024 * 2 / (450e9 * P.scale_up)
    assert link_times(one, P)["cp"] == pytest.approx(4 * 32 * (3 * time + 12 * P.latency))


def test_interleaved_pipelines_send_a_message_per_chunk() -> None:
    plain, chunked = (case(pipeline_par=4.0, data_par=2.0, pipeline_interleaving=chunks) for chunks in (1.0, 4.0))
    message = float(message_time(plain, sustained_rates(plain.accelerator, plain.software.age_years, P), P))
    assert link_times(chunked, P)["pp"] == pytest.approx(16 * 4 * 2 * message + 3 * 2 * message)
    assert link_times(plain, P)["pp"] < link_times(chunked, P)["pp"]


@pytest.mark.parametrize(
    ("model", "system", "procs", "limits"),
    [
        ("llama-3.1-70B", "h100_80g_sxm", 64, {}),
        ("mixtral-8x7B", "a100_80g_sxm", 32, {"expert_overlap": [True, False], "pipeline_overlap": [True, False]}),
    ],
)
def test_nothing_shows_more_than_is_sent(model: str, system: str, procs: int, limits: dict[str, Any]) -> None:
    scenario = engine.Scenario.of(
        model, system, num_procs=procs, max_batch_size=2 * procs, datatype="bfloat16", limits=limits
    )
    chosen = np.random.default_rng(1).choice(scenario.space.total, 2000, replace=False)
    rows = scenario.evaluate(scenario.space.table(list(chosen)))
    rows = rows[rows["total_time"].notna()].reset_index(drop=True)
    assert len(rows) > 500
    found = read(scenario.model, scenario.system, rows[[column.name for column in fields_of("calibrated")]]).arrays
    links = link_times(case_of_fields(scenario.model, scenario.system, found), parameters_of(scenario.used_calibration))
    hidden = 0
    for kind, name in EXPOSED.items():
        sent, shown = np.broadcast_to(links[kind], len(rows)), rows[name].to_numpy(np.float64)
        assert (shown <= sent * (1 + 1e-9) + 1e-12).all(), kind
        hidden += int((shown < 0.99 * sent).sum())
    assert hidden > len(rows)  # most hide something of several kinds
    alone = (rows["tensor_par_overlap"] == "none") & (rows["tensor_par"] > 1)
    assert rows["tp_comm_exposed_time"][alone].to_numpy() == pytest.approx(links["tp"][alone.to_numpy()])
