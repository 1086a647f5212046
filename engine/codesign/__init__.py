"""Co-design: which of a thousand machines is the best to build or buy for a mix of models, under budgets and limits.

A study is a product of models, systems and edits of them, sizes, datatypes and batches; each of its points is one
proven optimum. It runs in one process, on all cores of a machine or on the workers of a Dask cluster, into a folder
that holds all of its state, and the folder answers every question about it.

    >>> from engine import codesign
    >>> study = codesign.Study.read("study.json")      # doctest: +SKIP
    >>> codesign.estimate(study, 2, codesign.time_points(study)).sentence  # doctest: +SKIP
    >>> codesign.run(study, "results")                 # doctest: +SKIP
    >>> codesign.front("results", ["tokens_per_s", "usd"])  # doctest: +SKIP
"""

from engine.codesign.answers import Results
from engine.codesign.binding import BindingReport
from engine.codesign.costs import bill, breakdown, preset, preset_names, said_of, unpriced
from engine.codesign.design_space import MOST_POINTS, Design
from engine.codesign.errors import ClusterError, FolderError, StudyCancelled, StudyError
from engine.codesign.estimates import Estimate, PointTime, estimate, time_points
from engine.codesign.integrity import FolderCheck, check_folder
from engine.codesign.library import ready_names, ready_study
from engine.codesign.quantities import QUANTITIES, Quantity
from engine.codesign.reading import best_per_budget, front, results
from engine.codesign.running import Progress, run
from engine.codesign.schema import FORMAT, MIX, BatchRule, Constraint, Costs, Edit, Follow, StudyDocument
from engine.codesign.sensitivity import sensitivity
from engine.codesign.study import Study

__all__ = [
    "FORMAT",
    "MIX",
    "MOST_POINTS",
    "QUANTITIES",
    "BatchRule",
    "BindingReport",
    "ClusterError",
    "Constraint",
    "Costs",
    "Design",
    "Edit",
    "Estimate",
    "FolderCheck",
    "FolderError",
    "Follow",
    "PointTime",
    "Progress",
    "Quantity",
    "Results",
    "Study",
    "StudyCancelled",
    "StudyDocument",
    "StudyError",
    "best_per_budget",
    "bill",
    "breakdown",
    "check_folder",
    "estimate",
    "front",
    "preset",
    "preset_names",
    "ready_names",
    "ready_study",
    "results",
    "run",
    "said_of",
    "sensitivity",
    "time_points",
    "unpriced",
]
