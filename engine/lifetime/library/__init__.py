"""Ready lives of models, as the question plan_run has them."""
