"""Performance models of plans: the artifact's formulas and the calibrated cost model, as variants of one contract."""

from engine.planners.elastic.performance.figures import PlanFigures
from engine.planners.elastic.performance.variants import ARTIFACT, PHYSICAL, VARIANTS, PerformanceVariant, variant_of

__all__ = ["ARTIFACT", "PHYSICAL", "VARIANTS", "PerformanceVariant", "PlanFigures", "variant_of"]
