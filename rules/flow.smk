"""How Snakemake runs the rules, whatever profile and options it is given: what a right result rests on is set here.

A run holds results/ before it plans its jobs. A dry run, and whatever else only looks, changes nothing there: it plans
as if damaged results were set aside and its own files written.
"""

import time

from snakemake.io import ExistsDict, Mtime
from snakemake.settings.enums import RerunTrigger

from anchormatrix.store.codec import write_record
from anchormatrix.store.quarantine import find_damaged, set_aside

# A job that measures takes the whole host, any other a small part of it: so nothing of the run works beside a session,
# with any number of cores and on any executor. Threads would do it, too, but they reach the server as OMP_NUM_THREADS.
WHOLE_HOST = 1_000_000
workflow.register_resource("host", WHOLE_HOST)

# What leads to a measurement comes first and the sizes follow one another, so that the order of measuring never depends
# on which of several other jobs ends first.
BEFORE_MEASURING = 3000


def in_order_of_sizes(priority):
    """A priority for each contract: the sizes are measured in the order they are configured in."""
    return lambda wildcards: priority - SIZES.index(
        RUN.plan.of(wildcards.contract).size
    )


def share_host():
    """Give every job that does not measure its small part of the host; called when all rules are read."""
    for one in workflow.rules:
        if "host" not in one.resources:
            one.resources["host"] = 1


def insist():
    """Set what a profile may have left out."""
    # A number stays what it is when the wording of its rule changes; inputs may only order jobs.
    workflow.dag_settings.rerun_triggers = {RerunTrigger.MTIME, RerunTrigger.PARAMS}
    # A run that was killed goes on where it stopped.
    workflow.dag_settings.force_incomplete = True
    if workflow.execution_settings:
        # A size that cannot be measured does not stop the others.
        workflow.execution_settings.keep_going = True
    if workflow.scheduling_settings:
        # The next session must be among the jobs to choose from.
        workflow.scheduling_settings.subsample = None


def begin():
    """Hold results/, set aside what is damaged there and write the files of the run."""
    try:
        hold_results(Path(RESULTS))
        for said in set_aside(Path(RESULTS), find_damaged(Path(RESULTS))):
            logger.warning(said)
        RUN.write_files()
        for path, contract in FILES.lost_contracts.items():
            write_record(path, contract)
    except AnchorMatrixError as error:
        refuse(error)


class WithoutDamaged(ExistsDict):
    """What Snakemake knows of files, without those that a run would set aside: it lists whole folders as it goes."""

    def __init__(self, known, gone):
        super().__init__(known.cache)
        self.gone = frozenset(map(str, gone))
        self.has_inventory |= known.has_inventory
        for path, there in [*known.items(), *((path, False) for path in self.gone)]:
            self[path] = there

    def __setitem__(self, path, there):
        super().__setitem__(path, there and str(path) not in self.gone)


def look():
    """Let Snakemake see results/ as a run that begins now would leave it."""
    damaged = find_damaged(Path(RESULTS))
    for one in damaged:
        logger.warning(one.words("a run sets it aside, and makes it again"))
    gone = [path for one in damaged for path in one.gone]
    RUN.stored.leave_out(gone)
    workflow.iocache._exists_local = WithoutDamaged(workflow.iocache.exists_local, gone)
    written = map(str, FILES.lost_contracts)
    for path in (RUN.config_file, RUN.plan_file, RUN.asked, *written):
        workflow.iocache.exists_local[path] = True
        workflow.iocache.mtime[path] = Mtime(local=time.time())
        workflow.iocache.size[path] = sys.maxsize  # too large to be read for a checksum


def keep_promise():
    """Let every job run that was announced: after a checkpoint Snakemake looks again, and would drop what depends on a
    file that was made again with the content it had."""
    workflow.dag.forcefiles.update(
        name for job in workflow.dag.needrun_jobs() for name in job.output
    )


def before_planning(prepare):
    """Snakemake's last step before it plans the jobs, with ours: only by then it knows whether this is a dry run."""

    def prepare_all(*args, **settings):
        insist()
        runs = workflow.executor_plugin is not None and not workflow.dryrun
        main = workflow.is_main_process
        if main and runs:
            begin()
        # results/ has a lock of its own, which dies with its holder.
        prepare(*args, **{**settings, "nolock": True})
        if main and not runs:
            look()

    return prepare_all


workflow._prepare_dag = before_planning(workflow._prepare_dag)
