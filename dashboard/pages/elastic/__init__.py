"""Elastic: the best plan of a training job while its resources change, jobs that share a cluster, and workloads."""

from dashboard.pages.contract import Group, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="elastic",
    title="Elastic",
    group=Group.PLAN,
    place=3,
    help="The best plan of a training job under each limit of its resources, alone or sharing a cluster.",
    needs=Needs.NOTHING,
    guide="elastic",
    parameters={
        "elastic_show": "subject", "elastic_card": "model card", "elastic_own": "own model card",
        "elastic_phases": "phases",
        "elastic_pause": "pause at a change", "elastic_over": "resource", "elastic_variant": "performance model",
        "elastic_phase": "phase to look at", "elastic_basis": "kind of times", "elastic_model": "model",
        "elastic_system": "system", "elastic_batch": "global batch", "elastic_gpus": "number of GPUs",
        "elastic_lost": "lost nodes", "elastic_spares": "spare nodes", "elastic_repair": "time until repair",
        "elastic_steps": "phases of the model", "elastic_of": "kind of jobs", "elastic_jobs": "jobs",
        "elastic_shared": "GPUs that are shared", "elastic_workload": "workload", "elastic_nodes": "number of nodes",
        "elastic_node": "GPUs of a node", "elastic_stop": "pause at a start", "elastic_policy": "policy",
        "elastic_runs": "runs", "elastic_curve": "job to look at", "elastic_profile": "profile",
        "elastic_pcie": "bandwidth to the host", "elastic_nvlink": "bandwidth in the node", "elastic_onto": "card",
        "elastic_rule": "static strategy", "elastic_beside": "jobs beside it", "elastic_every": "plans",
        "elastic_own_profile": "own profile", "elastic_own_workload": "own workload",
        "elastic_own_losses": "own losses",
        "elastic_losses": "losses",
        "elastic_against": "run that others are compared with", "elastic_loss_shown": "losses or differences",
    },
)  # fmt: skip
