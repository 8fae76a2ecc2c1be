"""`slime submit`: a run as a job of a Ray cluster, from anywhere that reaches the server of jobs.

The job's command is `slime train` with the same file and flags, on the cluster's head; secrets are read there.

    slime submit run.toml --address http://HOST:8265 --follow
    slime submit logs raysubmit_AbCd --address http://HOST:8265
"""

import asyncio
import importlib
import itertools
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from slime_core.config import Installed, read_run_file
from slime_core.errors import ConfigError, UnknownName, WorkerError
from slime_launcher_ray.checks import need_ray

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

ResultT = TypeVar("ResultT")

STOPPED = 75
"""Exit code of a run that was asked to stop, as of `slime train`."""
STOP_S = 600
"""Seconds that a job has to save when it is asked to stop; Ray's own choice is 3."""
NO_AGENT = (
    "The head's agent of jobs does not run, most often since another program held its port when the head started "
    "(dashboard_agent.log in /tmp/ray/session_latest/logs says so): start the head again with "
    "--dashboard-agent-listen-port=8266"
)
LOOK_S = 0.5
VARIABLE = "$env:"
"""What a setting begins with that is read from the environment, where the run is."""


class _Submit(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        named = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if named else ["run", *args])


def _address(command: Callable[..., ResultT]) -> Callable[..., ResultT]:
    return click.option(
        "--address",
        metavar="URL",
        envvar="RAY_API_SERVER_ADDRESS",
        default="http://127.0.0.1:8265",
        show_default=True,
        help="Of the cluster's server of jobs.",
    )(command)


@click.group(cls=_Submit)
def submit() -> None:
    """Train as a job of a Ray cluster: slime submit RUN.toml --address http://HOST:8265."""


@submit.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("run_file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_address
@click.option("--follow", is_flag=True, help="Print the run's lines until it ends, and exit as it does.")
@click.option(
    "--working-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder that is sent along, for a cluster that does not see this one; the run file lies in it.",
)
@click.option("--python", metavar="PATH", help="The cluster's Python; default: this one's path.")
@click.pass_context
def run(
    ctx: click.Context, run_file: Path, address: str, follow: bool, working_dir: Path | None, python: str | None
) -> int:
    """Submit RUN_FILE; further flags are those of `slime train`."""
    read_run_file(run_file)
    _refuse_secrets(ctx.args)
    client = _client(address)
    command = _command(run_file, ctx.args, working_dir, python or sys.executable)
    environment: dict[str, object] = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S)}}
    if working_dir is not None:
        environment["working_dir"] = str(working_dir.resolve())
    try:
        job = str(client.submit_job(entrypoint=command, runtime_env=environment))
    except RuntimeError as error:
        said = " ".join(str(error).split())
        advice = f". {NO_AGENT}" if "No available agent" in said else ""
        raise WorkerError(f"the cluster at {address} took no job: {said}{advice}") from error
    click.echo(f"job {job}: {command}")
    if follow:
        return _follow(client, job)
    click.echo(f"slime submit logs {job} --follow --address {address}")
    return 0


@submit.command()
@click.argument("job")
@_address
def status(job: str, address: str) -> int:
    """Say how a job is."""
    info = _info(_client(address), job)
    click.echo(f"{job}: {info.status.value.lower()}{f', {info.message}' if info.message else ''}")
    return _code(info) if info.status.is_terminal() else 0


@submit.command()
@click.argument("job")
@_address
def stop(job: str, address: str) -> int:
    """Ask a job to end: it finishes its step and saves."""
    client = _client(address)
    if _info(client, job).status.is_terminal():
        click.echo(f"{job} has ended")
        return 0
    client.stop_job(job)
    click.echo(f"{job} is asked to stop; it has {STOP_S} s to save")
    return 0


@submit.command()
@click.argument("job")
@_address
@click.option("--follow", is_flag=True, help="Go on until it ends, and exit as it does.")
def logs(job: str, address: str, follow: bool) -> int:
    """Print what a job has printed."""
    client = _client(address)
    _info(client, job)
    if follow:
        return _follow(client, job)
    click.echo(client.get_job_logs(job), nl=False)
    return 0


def _command(run_file: Path, flags: Sequence[str], working_dir: Path | None, python: str) -> str:
    has_launcher = any(each.partition("=")[0] == "--launcher" for each in flags)
    given = ["--no-progress", *(() if has_launcher else ("--launcher", "ray")), *flags]
    if working_dir is None:
        start, name = f"cd {shlex.quote(str(Path.cwd()))} && ", str(run_file)
    elif run_file.resolve().is_relative_to(working_dir.resolve()):
        start, name = "", str(run_file.resolve().relative_to(working_dir.resolve()))
    else:
        raise ConfigError(f"{run_file} is not in {working_dir}, which --working-dir sends: put it there")
    return f"{start}exec {shlex.join([python, '-m', 'slime_core', 'train', name, *given])}"


def _refuse_secrets(flags: Sequence[str]) -> None:
    """See that no setting that is a secret is given by its flag: whoever sees the cluster sees a job's command."""
    for flag, following in itertools.pairwise([*flags, ""]):
        key, given, value = flag.removeprefix("--").partition("=")
        key = key.replace("-", "_")
        is_setting = flag.startswith("--") and key.count(".") == 2  # --ROLE.NAME.SETTING
        if not is_setting or (value if given else following).startswith(VARIABLE):
            continue
        if Installed().is_secret(*key.split(".")):
            name = key.rpartition(".")[2].upper()
            raise ConfigError(
                f"{key} is a secret, and all who see the cluster see a job's command: give {VARIABLE}{name}, and set "
                f"{name} where the head is started"
            )


def _client(address: str) -> "JobSubmissionClient":
    need_ray("slime submit")
    from ray.job_submission import JobSubmissionClient

    logging.getLogger(JobSubmissionClient.__module__).setLevel(logging.WARNING)  # it has set INFO
    try:
        try:
            return JobSubmissionClient(address)
        except Exception as error:
            if not _asks_for_token(error) or not _take_token():
                raise
            return JobSubmissionClient(address)
    except Exception as error:  # whatever HTTP library it uses
        if _asks_for_token(error):
            raise ConfigError(
                f"the server of Ray's jobs at {address} asks for a token: put the head's, which `ray get-auth-token` "
                "shows there, into ~/.ray/auth_token here, or into RAY_AUTH_TOKEN with RAY_AUTH_MODE=token"
            ) from error
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ConfigError(
            f"no server of Ray's jobs answers at {address}: {why}. Expected http://HOST:8265, the head's; start one "
            "with: ray start --head --dashboard-host=0.0.0.0"
        ) from error


def _asks_for_token(error: Exception) -> bool:
    return "authentication" in str(error).lower()


def _take_token() -> bool:
    """Use this user's token, as `ray start` does of itself; False: there is none, or the mode was chosen."""
    setup = importlib.import_module("ray._private.authentication.authentication_token_setup")
    logging.getLogger(setup.__name__).setLevel(logging.ERROR)  # it would speak of a cluster that starts
    return "RAY_AUTH_MODE" not in os.environ and bool(
        setup.maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    )


def _info(client: "JobSubmissionClient", job: str) -> "JobDetails":
    try:
        return client.get_job_info(job)
    except RuntimeError as error:
        known = [each.submission_id for each in client.list_jobs() if each.submission_id]
        raise UnknownName(f"no job {job!r} on this cluster. Jobs: {', '.join(known) or 'none'}") from error


def _follow(client: "JobSubmissionClient", job: str) -> int:
    """Print a job's lines until it ends; returns its exit code."""

    async def lines() -> None:
        async for text in client.tail_job_logs(job):
            click.echo(text, nl=False)

    try:
        asyncio.run(lines())
        while not client.get_job_info(job).status.is_terminal():
            time.sleep(LOOK_S)
    except KeyboardInterrupt:
        click.echo(f"\n{job} goes on; end it with: slime submit stop {job}", err=True)
        raise
    return _code(client.get_job_info(job))


def _code(info: "JobDetails") -> int:
    if info.driver_exit_code is not None:
        return int(info.driver_exit_code)
    return {"SUCCEEDED": 0, "STOPPED": STOPPED}.get(info.status.value, 1)
