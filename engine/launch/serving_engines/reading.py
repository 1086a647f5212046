"""Parts of a configuration of a serving engine, flags, YAML or pools of servers, into a deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.launch.contract import LaunchError
from engine.launch.report import parse_integer
from engine.launch.serving_engines.arguments import snapshot_of
from engine.launch.serving_engines.contract import LEFT_FIELDS, EngineInstance, EngineReading, ServingEngine
from engine.launch.serving_engines.engine_flags import EngineFlags
from engine.launch.serving_engines.model_names import library_name, suggested_bits
from engine.launch.serving_engines.registry import engine_of
from engine.launch.serving_engines.variables import check_environment, fill_in
from models.documents import shown

__all__ = ["read_engine"]

MOST_FLAGS: Final = 2_000
MOST_POOLS: Final = 8
_DEGREES: Final = ("tensor_par", "pipeline_par", "expert_par", "replicas")
_SHARED: Final = (
    "prefix_cache",
    "max_length",
    "mtp_tokens",
    "lora_adapters",
    "lora_rank",
    "host_cache_gib",
    "speculation",
)
"""Settings that stand beside the pools where all of them agree; the others are always a pool's own."""
_ROLES: Final = ("prefill", "decode", "agg")


@dataclass(frozen=True)
class _ServerReading:
    """Server of one pool: its instance, its flags, and the fields of the pool."""

    role: str
    instance: EngineInstance
    flags: EngineFlags
    fields: dict[str, Any]
    gpus: int | None
    copies: int


def read_engine(
    engine: str,
    *,
    flags: Mapping[str, Any] | None = None,
    yaml: Mapping[str, Any] | None = None,
    pools: Sequence[Mapping[str, Any]] | None = None,
    gpus: int | Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
) -> EngineReading:
    """Return the deployment, or the pools of it, that the flags of a serving engine describe.

    Args:
        engine: `vllm`, `sglang` or `trtllm`.
        flags: values by flag as the command line has them, `model` for the word without a flag; True for a flag
            without a value.
        yaml: contents of the engine's own configuration file.
        pools: servers by role instead: `role`, `replicas`, `nodes_per_replica`, `gpus_per_node`, `command`, `flags`,
            `yaml` of each.
        gpus: GPUs in all, or a table with their `count`; copies of the server follow from it.
        environment: values of variables that the flags name.

    Raises `LaunchError` for an unknown engine, and for values that the engine would refuse.
    """
    chosen, variables = engine_of(engine), check_environment(environment)
    count = _read_count(gpus)
    if pools is None:
        servers = [_read_server(chosen, {"flags": flags or {}, "yaml": yaml or {}}, variables, count)]
    else:
        if flags or yaml:
            raise LaunchError("Give pools, or the flags and YAML of one server.")
        if isinstance(pools, str | Mapping) or not isinstance(pools, Sequence) or not 1 <= len(pools) <= MOST_POOLS:
            raise LaunchError(f"pools must be a list of 1 to {MOST_POOLS} servers.")
        servers = [_read_server(chosen, _check_pool(pool), variables, None) for pool in pools]
    return _collect(chosen, servers, variables, count)


def _read_count(gpus: Any) -> int | None:
    found = gpus.get("count") if isinstance(gpus, Mapping) else gpus
    return None if found is None else parse_integer(found, "The number of GPUs")


def _check_pool(pool: Any) -> Mapping[str, Any]:
    if not isinstance(pool, Mapping):
        raise LaunchError(f"A pool is {shown(pool)}; it must be a table with role, replicas and flags.")
    role = str(pool.get("role") or "agg")
    if role not in _ROLES:
        raise LaunchError(f"The role of a pool is {shown(role)}; it must be {', '.join(_ROLES[:2])} or agg.")
    return {**pool, "role": role}


def _read_server(
    engine: ServingEngine, server: Mapping[str, Any], variables: Mapping[str, str], count: int | None
) -> _ServerReading:
    flags, yaml = _take_flags(engine, server, variables)
    instance = engine.read(flags, yaml)
    copies = 1
    if "role" in server:
        copies = parse_integer(server.get("replicas", 1), "replicas of a pool", 0)
        nodes = parse_integer(server.get("nodes_per_replica", 1), "nodes_per_replica")
        each = server.get("gpus_per_node")
        held = None if each is None else nodes * parse_integer(each, "gpus_per_node")
        if held is not None and instance.gpus is not None and held != instance.gpus:
            flags.remark([f"A replica of the pool has {held} GPUs, and its command uses {instance.gpus}."])
    elif count is not None and instance.gpus is not None:
        if count % instance.gpus == 0:
            copies = count // instance.gpus
        else:
            flags.remark([f"The command uses {instance.gpus} GPUs, which do not divide {count}."])
    fields = _order_fields(instance.fields)
    if "replicas" in fields:
        fields["replicas"] *= max(copies, 1)
    total = None if instance.gpus is None else instance.gpus * max(copies, 1)
    return _ServerReading(str(server.get("role", "")), instance, flags, fields, total, copies)


def _take_flags(
    engine: ServingEngine, server: Mapping[str, Any], variables: Mapping[str, str]
) -> tuple[EngineFlags, Mapping[str, Any]]:
    """Return the flags of a server with variables filled in, and the contents of its YAML."""
    given, yaml = server.get("flags") or {}, server.get("yaml") or {}
    for what, table in (("flags", given), ("yaml", yaml)):
        if not isinstance(table, Mapping) or len(table) > MOST_FLAGS:
            raise LaunchError(f"{what} must be a table of at most {MOST_FLAGS:,} values by name.")
    is_worker = "dynamo" in str(server.get("command") or "")
    name = f"dynamo_{engine.name}" if is_worker else engine.snapshot
    title = f"{'Dynamo with ' if is_worker else ''}{engine.title} {engine.version}"
    flags = EngineFlags(snapshot_of(name), title, str(server.get("role", "")))
    given = fill_in({str(key): value for key, value in given.items()}, variables)
    yaml = fill_in({str(key): value for key, value in yaml.items()}, variables)
    positional = given.pop("model", None)
    if engine.name != "trtllm":
        flags.add(yaml)
    flags.add(given, source="the command line" if yaml and engine.name != "trtllm" else "")
    if positional is not None:
        name = "model-path" if engine.name == "sglang" else "model"
        flags.values[name], flags.written[name] = positional, "model"
    return flags, {} if engine.name != "trtllm" else yaml


def _order_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    names = (*_DEGREES, "batch", "weight_bits", "kv_bits", "launch")
    return {name: fields[name] for name in names if name in fields}


def _collect(
    engine: ServingEngine, servers: Sequence[_ServerReading], variables: Mapping[str, str], count: int | None
) -> EngineReading:
    settings = [dict(each.instance.settings) for each in servers]
    for each, values in zip(servers, settings, strict=True):
        if each.role == "prefill" and each.instance.settings.get("speculation"):
            values.pop("speculation")
    # Of pools, the one that decodes speculates.
    spoken = [each for each, server in zip(settings, servers, strict=True) if server.role != "prefill"] or settings
    open_speculation = next((each["open_speculation"] for each in spoken if each.get("open_speculation")), "")
    draft = next((each["draft"] for each in spoken if each.get("draft")), None)
    for values in settings:
        values.pop("draft", None)
        values.pop("open_speculation", None)
    shared = {
        name: settings[0][name]
        for name in settings[0]
        if len(servers) == 1 or (name in _SHARED and all(each.get(name) == settings[0][name] for each in settings))
    }
    said = {name for each in servers for name in each.fields}
    left = [name for name in LEFT_FIELDS if name not in said]
    if _states_workload(servers):
        left = [name for name in left if name not in ("prompt", "output")]
    left += [name for name in (*_DEGREES, "launch") if name not in said]
    model = next((each.instance.model for each in servers if each.instance.model), "")
    hint = None if "weight_bits" in said else suggested_bits(model or " ".join(_model_variables(variables)))
    remarks = _gather(servers, "remarks")
    if open_speculation:
        remarks.append(open_speculation)
    if hint is not None:
        remarks.append(f"The name of the model says {hint[1]}; the bits of its weights stay open.")
    totals = [each.gpus for each in servers]
    total = sum(each for each in totals if each is not None) if None not in totals else None
    if count is not None and total is not None and count != total and len(servers) > 1:
        remarks.append(f"The pools have {total} GPUs in all, not {count}.")
    for each in servers:
        for expression in dict.fromkeys(each.flags.open.values()):
            remarks.append(f"{expression} comes from outside; state it as a variable.")
        if each.role and each.copies == 0:
            remarks.append(f"The {each.role} pool has 0 replicas, for an autoscaler to set; 1 is read.")
    single = len(servers) == 1
    reading_settings: dict[str, Any] = {name: shared.get(name) for name in (*_SHARED, "chunk", "memory_fraction")}
    return EngineReading(
        engine=engine.name,
        deployment=servers[0].fields if single else None,
        pools=None if single else _name_pools(servers, settings, shared),
        rejected_by_us=_rejection(servers),
        weight_bits_hint=None if hint is None else hint[0],
        left=left,
        not_modelled=_gather(servers, "not_modelled"),
        without_effect=list(dict.fromkeys(name for each in servers for name in each.flags.list_without_effect())),
        unread=_gather(servers, "unread"),
        remarks=list(dict.fromkeys([*remarks, *_former_remarks(servers)])),
        gpus=total,
        model=model,
        model_name=library_name(model) if model else None,
        draft=draft if draft is None or "draft_tokens" in draft else None,
        open_speculation=open_speculation,
        **reading_settings,
    )


def _name_pools(
    servers: Sequence[_ServerReading], settings: Sequence[Mapping[str, Any]], shared: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for each, values in zip(servers, settings, strict=True):
        own = {name: value for name, value in values.items() if name not in shared}
        role = each.role
        if role in found:
            role = f"{role}_{sum(name.startswith(role) for name in found) + 1}"
        found[role] = {**each.fields, **own}
    return found


def _states_workload(servers: Sequence[_ServerReading]) -> bool:
    """True for pools of srt-slurm, whose flags have no dashes: the same file has the lengths of its benchmark."""
    names = [name for each in servers for name in each.flags.written.values()]
    return bool(names) and all(each.role for each in servers) and not any(name.startswith("-") for name in names)


def _model_variables(variables: Mapping[str, str]) -> list[str]:
    return [value for name, value in variables.items() if name.startswith("MODEL") and "/" in value]


def _rejection(servers: Sequence[_ServerReading]) -> str | None:
    for each in servers:
        if each.instance.rejected:
            if len(servers) > 1:
                return f"{each.role}: {each.instance.rejected}"
            return f"{each.instance.rejected}: a layout without a word"
    return None


def _gather(servers: Sequence[_ServerReading], name: str) -> list[str]:
    return list(dict.fromkeys(sentence for each in servers for sentence in getattr(each.flags, name)))


def _former_remarks(servers: Sequence[_ServerReading]) -> list[str]:
    found = []
    for each in servers:
        for name, (raw, _) in each.flags.former.items():
            new = each.flags.snapshot.gone[name]
            if name != "cuda-graph-max-bs":
                today = f"; today it is {new}." if new else "."
                found.append(f"{raw} is not an argument of {each.flags.title} any more{today}")
    return found
