"""Which network a group of processors uses: one answer, which nobody else works out from positions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
    used = (*system.networks_below(processors), system.network_spanning(processors))
    assert used[-1] == system.network_spanning(processors) == system.network_at(system.tier_spanning(processors))
    assert all(network.size < processors for network in used[:-1])
    assert used[-1].size >= processors or (processors > system.reach and len(used) == system.tiers)
    assert system.reach == max(system.reaches)


@given(st.sampled_from(hardware.names()), st.lists(st.integers(1, 10**6), min_size=1))
def test_many_groups_have_the_networks_of_each(name: str, groups: list[int]) -> None:
    system = hardware.load(name)
    expected = [system.tiers if group > system.reach else system.tier_spanning(group) for group in groups]
    assert system.tiers_spanning(groups).tolist() == expected


def test_nodes_of_another_size_and_bandwidth() -> None:
    narrow = hardware.limit_nodes(PODS, 4, 5.0)
    assert [(each.size, each.bandwidth_gb_per_s) for each in narrow.networks] == [(4, 450), (3_072, 5), (24_576, 5)]
    wide = hardware.limit_nodes(PODS, 8, 25.0)
    assert [each.bandwidth_gb_per_s for each in wide.networks] == pytest.approx([450, 25, 7.142857])
    assert hardware.limit_nodes(PODS, 8) is PODS
    one = hardware.load("trainium3_144g")
    assert hardware.limit_nodes(one, one.node_size, 1.0) == one


PAIRS = hardware.load("h100_80g_pcie_pairs")


def test_a_node_may_have_several_networks() -> None:
    """Pairs on NVLink bridges in a host of eight: the host is the node, and InfiniBand is what is between nodes."""
    assert (PAIRS.node_size, PAIRS.network_between_nodes(4)) == (8, PAIRS.network_spanning(9))
    sizes = {node: [each.size for each in hardware.limit_nodes(PAIRS, node).networks] for node in (1, 2, 4, 8)}
    assert sizes == {1: [1, 1, 65_536], 2: [2, 2, 65_536], 4: [2, 4, 65_536], 8: [2, 8, 65_536]}
    limited = hardware.limit_nodes(PAIRS, 4, 5.0)
    assert [each.bandwidth_gb_per_s for each in limited.networks] == [300, 64, 5]


def test_what_a_node_has_inside_is_not_outside_another_network() -> None:
    wrong = hardware.to_document(PODS)
    wrong["networks"][2]["within_node"] = True
    with pytest.raises(hardware.SystemFileError, match=r"networks\.2 within a node, but networks\.1 is not"):
        hardware.load_document(wrong)


def test_the_name_of_a_network_is_edited_and_kept() -> None:
    renamed = hardware.edited(PODS, {"networks.2.name": "core"})
    assert hardware.network_names(renamed) == ("NVLink", "InfiniBand", "core")
    assert [(each.field, each.old, each.new) for each in renamed.changes] == [("networks.2.name", "", "core")]
    assert hardware.load_document(hardware.to_document(renamed)) == renamed


def test_two_networks_of_one_name_are_told_apart() -> None:
    twice = hardware.edited(PODS, {"networks.0.name": "InfiniBand", "networks.2.name": "InfiniBand"})
    assert hardware.network_names(twice) == ("InfiniBand", "InfiniBand 2", "InfiniBand 3")


@pytest.mark.parametrize(
    "name", ["**bold**", "a_b", "<b>", "`x`", "$x$", "[a](b)", "- list", "2", "x" * 41, "a\nb", ":red[x]"]
)
def test_names_of_networks_are_plain_words(name: str) -> None:
    with pytest.raises(hardware.SystemFileError) as refused:
        hardware.edited(PODS, {"networks.2.name": name})
    assert len(str(refused.value).splitlines()) == 1


def test_networks_have_names_of_their_own() -> None:
    assert hardware.network_names(PODS) == ("NVLink", "InfiniBand", "spine")
    for tiers in range(1, 9):
        known = PODS.model_copy(update={"networks": (PODS.networks * 4)[:tiers]})
        for system in (known, known.model_copy(update={"accelerator": None})):
            assert len(set(hardware.network_names(system))) == tiers


def test_nobody_outside_hardware_takes_a_network_by_its_position() -> None:
    """`networks[1]` is the network between nodes on two tiers, and the wrong one on three."""
    found = []
    for folder in ("engine", "dashboard", "models"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(file.read_text())
            found += [f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}" for node in _positions(tree)]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "system.networks[0]",
        "system.networks[-1].size",
        "near, far = system.networks",
        "near, *rest = scenario.system.networks",
        "for near, far in zip(system.networks, system.networks[1:]): pass",
        "found = system.networks\nfound[0]",
        "list(system.networks)[1]",
        "tuple(reversed(system.networks))[0]",
        "last = len(system.networks) - 1",
        "next(iter(system.networks))",
    ],
)
def test_positions_are_seen(code: str) -> None:
    assert list(_positions(ast.parse(code)))


def _positions(tree: ast.AST) -> Iterator[ast.AST]:
    """Places that take a network by its position, or count networks to find one."""
    aliases = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_networks(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        taken = isinstance(node, ast.Subscript) and _is_networks(node.value, aliases)
        unpacked = isinstance(node, ast.Assign) and _is_tuple(node.targets[0]) and _is_networks(node.value, aliases)
        counted = (
            isinstance(node, ast.Call) and _called(node) in ("len", "next") and _is_networks(node.args[0], aliases)
        )
        if taken or unpacked or counted:
            yield node


def _is_networks(value: ast.expr, aliases: set[str]) -> bool:
    if isinstance(value, ast.Call) and _called(value) in ("list", "tuple", "reversed", "iter") and value.args:
        return _is_networks(value.args[0], aliases)
    if isinstance(value, ast.Name):
        return value.id in aliases
    return isinstance(value, ast.Attribute) and value.attr == "networks"


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _is_tuple(target: ast.expr) -> bool:
    return isinstance(target, ast.Tuple | ast.List)
