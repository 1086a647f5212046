"""The regression gate: predictions of two revisions of the code, compared over the support surface and measured runs.

`surface` samples executions of every kind of model, generation, layout and field; `prediction` predicts them, also with
the code of another revision (`revisions`); `comparison` groups changes and errors, and finds groups that got worse;
`report` prints them.
"""
