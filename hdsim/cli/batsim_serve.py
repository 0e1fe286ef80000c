"""``hdsim batsim-serve``: hdsim in the place of Batsim; options are named as Batsim's where it has them."""

from __future__ import annotations

import shlex
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import click

from hdsim.backends.batsim.protocol import DEFAULT_ENDPOINT

_LONGEST_WAIT = 1e6  # s, what ZeroMQ and the operating system can wait for
_file = click.Path(exists=True, dir_okay=False)


@click.command("batsim-serve")
@click.option(
    "-s", "--socket-endpoint", default=DEFAULT_ENDPOINT, show_default=True, help="Where the scheduler listens."
)
@click.option("-p", "--platform", required=True, help="SimGrid XML, hdsim's JSON, or the name of a bundled platform.")
@click.option(
    "-w", "--workload", "workloads", multiple=True, required=True, help="Batsim's JSON or SWF; may be given repeatedly."
)
@click.option("-e", "--export", default="out", show_default=True, help="Prefix of the CSV files to write.")
@click.option("-E", "--energy", is_flag=True, help="Count energy and let the scheduler set P-states.")
@click.option("-m", "--master-host", help="Host of the XML that runs no job.  [default: master_host]")
@click.option("--sched-cfg", help="Text handed to the scheduler when the simulation begins.")
@click.option("--sched-cfg-file", type=_file, help="File with such a text.")
@click.option("--events", type=_file, help="External events, one JSON object a line.")
@click.option("--forward-unknown-events", is_flag=True, help="Send external events of unknown types on.")
@click.option("--enable-dynamic-jobs", "dynamic_jobs", is_flag=True, help="Let the scheduler register jobs.")
@click.option("--acknowledge-dynamic-jobs", is_flag=True, help="Send a submission for each registered job.")
@click.option(
    "--enable-profile-reuse",
    "profile_reuse",
    is_flag=True,
    help="Tell the scheduler so; hdsim never forgets a profile.",
)
@click.option(
    "--forward-profiles-on-submission",
    "forward_profiles",
    is_flag=True,
    help="Send each job's profile with its submission.",
)
@click.option("--contention", default="none", show_default=True, help="Contention model, as in hdsim run.")
@click.option("--network", default="none", show_default=True, help="Network model, as in hdsim run.")
@click.option(
    "--batsim-energy", "as_batsim", is_flag=True, help="With -E: count energy as SimGrid does, with its error."
)
@click.option("--one-event-per-message", "one_event", is_flag=True, help="Never send two events at once.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds each reply may take.")
@click.option("--sched-cmd", help="Command that starts the scheduler, whose output goes to PREFIX_sched.log.")
@click.option("-q", "--quiet", is_flag=True, help="No progress bar and no summary.")
def batsim_serve(
    socket_endpoint: str,
    platform: str,
    workloads: tuple[str, ...],
    export: str,
    master_host: str | None,
    sched_cfg: str | None,
    sched_cfg_file: str | None,
    events: str | None,
    contention: str,
    network: str,
    timeout: float,
    sched_cmd: str | None,
    quiet: bool,
    **flags: bool,
) -> None:
    """Simulates a cluster for a scheduler that speaks Batsim's protocol (Batsim 3 and 4, JSON over ZeroMQ).

    Start the scheduler, which binds its socket, and this command, in any order; or let this command start it:

    \b
    pybatsim easyBackfill &
    hdsim batsim-serve -p gaia -w workload.json -e results/easy
    hdsim batsim-serve -p gaia -w workload.json -e results/easy --sched-cmd "pybatsim easyBackfill"
    """  # noqa: D301 - click reads the backspace character
    from tqdm import tqdm

    from hdsim.backends.batsim.hosts import hosts_of, load_hosts
    from hdsim.backends.batsim.inputs import Options, read_events, read_jobs
    from hdsim.backends.batsim.output import make_folder
    from hdsim.backends.batsim.protocol import SCHEDULER
    from hdsim.backends.batsim.server import BatsimServer
    from hdsim.backends.batsim.zeromq import SchedulerSocket, serve
    from hdsim.platform.load import load_platform
    from hdsim.simulation.setup import make_model
    from hdsim.util.process import Process
    from hdsim.util.resources import resolve

    if not 0 < timeout <= _LONGEST_WAIT:
        raise click.UsageError(f"--timeout: expected more than 0 s and at most {_LONGEST_WAIT:g}, got {timeout:g}")
    if sched_cfg is not None and sched_cfg_file is not None:
        raise click.UsageError("expected one of --sched-cfg and --sched-cfg-file, got both")
    if sched_cfg_file is not None:
        sched_cfg = Path(sched_cfg_file).read_text(encoding="utf-8")
    options = Options(**flags, sched_config=sched_cfg or "")
    if options.as_batsim and not options.energy:
        raise click.UsageError("--batsim-energy needs -E")
    if options.acknowledge_dynamic_jobs and not options.dynamic_jobs:
        raise click.UsageError("--acknowledge-dynamic-jobs needs --enable-dynamic-jobs")
    command = None if sched_cmd is None else _words(sched_cmd)
    if Path(platform).suffix.lower() == ".xml":
        hosts = load_hosts(platform, master=master_host)
    else:
        hosts = hosts_of(load_platform(resolve("platforms", platform, where="-p")))
    server = BatsimServer(
        hosts,
        [read_jobs(resolve("workloads", path, where="-w"), hosts.platform, path) for path in workloads],
        options,
        contention=make_model("contention", contention, hosts.platform),
        network=make_model("network", network, hosts.platform),
        events=None if events is None else read_events(events),
    )
    # SIGTERM ends the command as SIGINT does: the results so far are written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begin = time.perf_counter()
    bar = tqdm(total=len(server.cluster.workload), unit="job", desc="simulation", delay=0.5, leave=False, disable=quiet)
    scheduler = SchedulerSocket(socket_endpoint, timeout)
    with ExitStack() as stack:
        stack.enter_context(scheduler)
        if command is not None:
            make_folder(export)
            process = stack.enter_context(Process(command, Path(f"{export}_sched.log"), SCHEDULER))
            scheduler.process = process
        try:
            with bar:
                serve(server, scheduler.exchange, lambda: bar.update(len(server.record.jobs) - bar.n))
        finally:
            seconds = time.perf_counter() - begin
            paths = server.record.write(export, scheduling_seconds=scheduler.waited, wall_seconds=seconds)
            if not quiet:
                click.echo(f"{server.record.summary()}\n{', '.join(map(str, paths))}", err=True)
        if command is not None:
            process.wait(timeout)


def _words(command: str) -> list[str]:
    """A command of a program that exists, cut into words as a shell does."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--sched-cmd: expected a command, got '{command}': {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise click.UsageError(f"--sched-cmd: expected a program on PATH or its path, got '{command}'")
    return words
