"""Work outside the pages, shared by all sessions of a server: one board, and worker processes.

A page asks the `board` for a job by a key that identifies its question; sessions with equal questions share one job.
The board gives jobs their turns, stops them, pauses unwatched ones, and remembers results within the bounds of their
`job.JobKind`. Long work runs in a `worker`, a process that sends progress, partial results and the engine's refusals.
`widgets.job_card` draws a job: progress, rate, time left and a stop button; or its end, and a button to restart it.

A new kind of job is a function, a job and a line:

    def plan(task: Task, problem: Problem) -> Plan:         # in a module that imports no page: a worker imports it
        return layerwise.plan(problem, progress=task.tell, cancel=task.stops)

    PLANS = Kind(name="plan", doing="Planning", workers={"": server().workers.large})

    class PlanJob(Job):
        def __init__(self, problem: Problem) -> None:
            super().__init__(PLANS, problem.key, "Planning", problem.title)
            self.problem, self.plan = problem, None

        def work(self) -> bool:
            self.plan = self.run(plan, self.problem)
            return False                                    # True where there is another part: a sweep's next point

    job = server().board.post(PlanJob(problem), watcher)    # on the page
    if not job.wait(1.0): watch(job, watcher); st.stop()

Work in parts (`Kind.in_parts`) puts each into `Job.found`, is stopped and resumed between two of them, and takes turns
with the others of its lane. `Job.run(give=...)` takes parts while a function runs. `Kind` has every bound: how many may
wait, in all and for one session, how many run at once, what is remembered, and for how long. Progress is whatever has
`done`, `total`, `rate` and `seconds_left`, such as `engine.Progress`; `task.stops()` is asked between two steps, and
`engine.ExplorationCancelled` raised when it is true.
"""
