"""Schedules: pipeline schedules replayed event by event, two beside each other, and which is best when."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="schedules",
    title="Schedules",
    group=NavigationGroup.PLAN,
    place=1,
    help="Pipeline schedules replayed: work, waiting and memory of each rank, and the best schedule.",
    needs=Needs.SCENARIO,
    guide="schedules",
    parameters={
        "schedules_show": "subject",
        "schedules_grid_model": "model of the grid",
        "schedules_grid_revision": "revision of DistIR",
        "schedules_grid_machine": "constants of the grid",
        "schedules_grid_batch": "batch of the grid",
        "schedules_grid_devices": "most devices of the grid",
        "schedules_grid_gbps": "bandwidth of the grid",
        "schedules_grid_limit": "memory of a device",
        "schedules_grid_placed": "switch for weights in place",
        "schedules_grid_fit": "constants of the overlay",
        "schedules_grid_kind": "kind of parallelism drawn",
        "schedules_from": "source of the times",
        "schedules_a": "first schedule",
        "schedules_b": "second schedule",
        "schedules_ranks": "ranks",
        "schedules_microbatches": "microbatches",
        "schedules_chunks": "chunks per rank",
        "schedules_group": "group size",
        "schedules_forward": "time of a forward",
        "schedules_input": "time of an input gradient",
        "schedules_weight": "time of a weight gradient",
        "schedules_send": "send time",
        "schedules_mode": "mode of sends",
        "schedules_uneven": "imbalance",
        "schedules_pair": "share that pairs hide",
        "schedules_memory": "limit on activations",
        "schedules_counted": "definition of a step",
        "schedules_stages": "kind of stages",
        "schedules_layout": "stage layout",
        "schedules_along": "slider of the curve",
        "schedules_path": "switch for the critical path",
    },
)
