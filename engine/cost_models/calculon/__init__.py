"""The cost model `calculon`: Calculon 0.1.0 to the last digit, also where that departs from what hardware does.

`physics` has the effects of a block and of a step, `rows` evaluates many executions of a space at once, the modules
beside them evaluate tables of executions, tell how figures come about, and make all of it one cost model.
"""
