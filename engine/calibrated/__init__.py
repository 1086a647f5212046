"""The calibrated cost model: step time and memory as measured runs show them."""
