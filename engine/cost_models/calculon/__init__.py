"""The exact cost model: Calculon 0.1.0 to the last digit, also where that departs from what hardware does."""
