"""``hdsim bench``: agents on benchmarks with frozen names, submissions, and tables of them."""

from __future__ import annotations

from math import nan
from pathlib import Path

import click

from hdsim.cli.parameters import OUTPUT


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from hdsim.simulation.benchmarks import NAMESPACE
    from hdsim.util.resources import bundled

    names = [*(NAMESPACE + name for name in bundled("benchmarks")), "verify", "table", "choose"]
    return [name for name in names if name.startswith(incomplete)]


@click.command()
@click.argument("what", required=False, metavar="[ID|verify|table|choose]", shell_complete=_complete)
@click.argument("names", nargs=-1, metavar="[FILE|ID]...")
@click.option("--agent", metavar="AGENT", help='The agent: a Python file, a name, or "NAME KEY=VALUE ...".')
@click.option("--name", default="", metavar="NAME", help="Its name in tables, by default that of --agent.")
@click.option("--traces", type=click.IntRange(1), metavar="N", help="Fewer test windows of each case, for a try.")
@click.option("-o", "--output", type=OUTPUT, metavar="FILE", help="Where it goes  [default: submission.json].")
def bench(
    what: str | None, names: tuple[str, ...], agent: str | None, name: str, traces: int | None, output: Path | None
) -> None:
    """Evaluates an agent on a benchmark, or verifies submissions.

    \b
    hdsim bench                               lists the benchmarks
    hdsim bench hdsim/Home-v1 --agent my.py   evaluates an agent, writes submission.json
    hdsim bench verify submission.json        repeats an evaluation and compares everything
    hdsim bench table submission.json ...     prints submissions as a table in Markdown
    hdsim bench table hdsim/Home-v1 ...       evaluates all its plain schedulers and agents for one
    hdsim bench choose hdsim/Home-v1          chooses the baselines on validation windows, and compares

    Test windows follow from the digest of the agent's code and weights, which no training can know.
    """  # noqa: D301 - click reads the backspace character
    from hdsim.simulation.benchmarks import benchmarks, read_benchmark
    from hdsim.studies import bench as found

    if what is None:
        known = benchmarks()
        for key, value in known.items():
            click.echo(f"{key:{max(map(len, known))}}  {value.about}")
        return
    given = [key for key, value in (("agent", agent), ("name", name), ("traces", traces), ("output", output)) if value]
    if what in ("verify", "table", "choose"):
        if given and not (what == "table" and given[0] in ("traces", "output")):
            raise click.UsageError(f"--{given[0]}: expected an ID with it, got {what}")
        if not names:
            raise click.UsageError(f"expected {'an ID' if what == 'choose' else 'a submission file'} after {what}")
        if what == "table":
            _table(names, traces, output)
        for each in names if what == "verify" else ():
            submission = found.verify(Path(each), _tell)
            click.echo(f"{each}: verified\n\n" + "\n".join(found.table([submission])), nl=False)
        for each in names if what == "choose" else ():
            _choose(each)
        return
    benchmark = read_benchmark(what)
    if names or agent is None:
        raise click.UsageError("expected --agent with an ID, and nothing else after it")
    submission = found.submit(benchmark, agent, name, traces, _tell)
    path = output or Path("submission.json")
    found.write_submission(submission, path)
    click.echo("\n".join(found.table([submission])))
    if submission.remark:
        click.echo(submission.remark)
    click.echo(f"submission  {path}\nverify      hdsim bench verify {path}")


def _table(names: tuple[str, ...], traces: int | None, output: Path | None) -> None:
    from hdsim.simulation.benchmarks import read_benchmark
    from hdsim.studies.bench import baselines, read_submission, table
    from hdsim.util.files import replacing

    rows = []
    for name in names:
        if name.endswith(".json"):
            if traces is not None:
                raise click.UsageError(f"--traces: expected an ID with it, got {name}")
            rows.append(read_submission(Path(name)))
        else:
            rows += baselines(read_benchmark(name), traces, _tell)
    text = "\n".join(table(rows))
    if output is None:
        click.echo(text, nl=False)
    else:
        with replacing(output) as file:
            file.write(text)


def _tell(line: str) -> None:
    click.echo(line, err=True)


def _choose(name: str) -> None:
    from hdsim.errors import ConfigError
    from hdsim.simulation.benchmarks import read_benchmark
    from hdsim.studies.bench import chosen

    benchmark, faults = read_benchmark(name), []
    for case in benchmark.cases:
        best, means = chosen(benchmark, case, click.echo)
        if best != case.baseline:
            told = f"expected {best} ({means[best]:.4g}), got {case.baseline} ({means.get(case.baseline, nan):.4g})"
            faults.append(ConfigError(told, where=f"{benchmark.id}: cases.{case.name}.baseline"))
    if faults:
        raise ConfigError.many(faults)
