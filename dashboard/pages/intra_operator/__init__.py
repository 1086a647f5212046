"""Intra-operator: how contractions inside layers are split over the devices of a mesh, as CFP and Alpa search it."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="intra_operator",
    title="Intra-operator",
    group=NavigationGroup.PLAN,
    place=4,
    help="How the products inside layers are split over devices: every vector of strategies, and the best.",
    needs=Needs.NOTHING,
    guide="intra-operator",
    parameters={
        "intra_operator_from": "source of the model",
        "intra_operator_suite": "published model",
        "intra_operator_model": "model",
        "intra_operator_system": "system",
        "intra_operator_type": "datatype",
        "intra_operator_devices": "number of devices",
        "intra_operator_batch": "batch",
        "intra_operator_layers": "number of layers",
        "intra_operator_rate": "matrix rate",
        "intra_operator_bandwidth": "bandwidth",
        "intra_operator_exchange": "bandwidth of all-to-alls",
        "intra_operator_alpha": "time of a collective",
        "intra_operator_width": "width of an element",
        "intra_operator_state": "bytes of a parameter",
        "intra_operator_sharded": "sharded state",
        "intra_operator_sweeps": "sweeps",
        "intra_operator_groups": "groups of devices",
        "intra_operator_outer": "bandwidth between groups",
        "intra_operator_log": "measured points",
        "intra_operator_recompute": "recomputation",
        "intra_operator_microbatches": "number of microbatches",
        "intra_operator_sequence": "sequence parallelism",
        "intra_operator_beside": "comparison with executions",
        "intra_operator_limit": "memory limit",
        "intra_operator_shown": "vectors to show",
        "intra_operator_like": "pattern of vectors",
        "intra_operator_layer": "kind of layer",
        "intra_operator_over": "parameter of the sweep",
        "intra_operator_result": "figure of the sweep",
    },
)
