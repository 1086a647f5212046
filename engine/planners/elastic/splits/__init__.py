"""Several jobs on one node: equal shares, registered rules, and the best split that keeps guarantees."""

from engine.planners.elastic.splits.jobs import SplitJob, jobs_of
from engine.planners.elastic.splits.shares import Split, split

__all__ = ["Split", "SplitJob", "jobs_of", "split"]
