"""Which network a group of processors uses: one answer, which nobody else works out from positions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardware

ROOT = Path(__file__).parents[2]
PODS = hardware.load("h100_80g_sxm_pods")


@pytest.mark.parametrize(
    ("processors", "tier", "bandwidth"),
    [(1, 0, 450), (8, 0, 450), (9, 1, 50), (3_072, 1, 50), (3_073, 2, 50 / 7), (24_576, 2, 50 / 7), (10**6, 2, 50 / 7)],
)
def test_the_network_of_a_group(processors: int, tier: int, bandwidth: float) -> None:
    assert PODS.tier_spanning(processors) == tier
    assert PODS.network_spanning(processors).bandwidth_gb_per_s == pytest.approx(bandwidth)


@given(st.sampled_from(hardware.names()), st.integers(1, 10**6))
def test_the_network_of_a_group_is_the_first_that_joins_it(name: str, processors: int) -> None:
    system = hardware.load(name)
    used = system.networks[: system.tier_spanning(processors) + 1]
    assert used[-1] == system.network_spanning(processors) == system.network_at(system.tier_spanning(processors))
    assert all(network.size < processors for network in used[:-1])
    assert used[-1].size >= processors or (processors > system.reach and len(used) == len(system.networks))


def test_nodes_of_another_size_and_bandwidth() -> None:
    narrow = hardware.limit_nodes(PODS, 4, 5.0)
    assert [(each.size, each.bandwidth_gb_per_s) for each in narrow.networks] == [(4, 450), (3_072, 5), (24_576, 5)]
    wide = hardware.limit_nodes(PODS, 8, 25.0)
    assert [each.bandwidth_gb_per_s for each in wide.networks] == pytest.approx([450, 25, 7.142857])
    assert hardware.limit_nodes(PODS, 8) is PODS
    one = hardware.load("trainium3_144g")
    assert hardware.limit_nodes(one, one.node_size, 1.0) == one


def test_networks_have_names_of_their_own() -> None:
    assert hardware.network_names(PODS) == ("NVLink", "InfiniBand", "spine")
    for tiers in range(1, 9):
        known = PODS.model_copy(update={"networks": (PODS.networks * 4)[:tiers]})
        for system in (known, known.model_copy(update={"accelerator": None})):
            assert len(set(hardware.network_names(system))) == tiers


def test_nobody_outside_hardware_takes_a_network_by_its_position() -> None:
    """`networks[1]` is the network between nodes on two tiers, and the wrong one on three."""
    found = []
    for folder in ("engine", "dashboard"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                taken = isinstance(node, ast.Subscript) and _is_networks(node.value)
                unpacked = isinstance(node, ast.Assign) and _is_networks(node.value) and _is_tuple(node.targets[0])
                if taken or unpacked:
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def _is_networks(value: ast.expr) -> bool:
    return isinstance(value, ast.Attribute) and value.attr == "networks"


def _is_tuple(target: ast.expr) -> bool:
    return isinstance(target, ast.Tuple | ast.List)
