"""Performance models of plans: fitted formulas and the calibrated cost model, as variants of one contract."""

from engine.planners.elastic.performance.figures import PlanFigures
from engine.planners.elastic.performance.variants import FITTED, PHYSICAL, VARIANTS, PerformanceVariant, variant_of

__all__ = ["FITTED", "PHYSICAL", "VARIANTS", "PerformanceVariant", "PlanFigures", "variant_of"]
