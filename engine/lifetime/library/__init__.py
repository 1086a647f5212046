"""Ready fleets, as the question plan_fleet has them."""
