import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving import free_port
from whole_run import AGENT, write_run

from slime_core.cli import run_cli

SLIME = [sys.executable, "-m", "slime_core"]


def test_run_is_served_to_a_fleet_worker(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    run_file = write_run(tmp_path, f'agent = "{tmp_path / "agents.py"}:solve"\nmax_turns = 5')
    port = free_port()
    path = os.pathsep.join(filter(None, sys.path))
    env = os.environ | {"SLIME_FLEET_TOKEN": "a token for one test", "PYTHONPATH": path}
    work = [*SLIME, "agent", "work", f"http://127.0.0.1:{port}", f"{tmp_path / 'agents.py'}:solve"]
    serve = [*SLIME, "agent", "serve", str(run_file), "--port", str(port), "--no-progress"]
    with subprocess.Popen([*work, "--agents", "3", "--workers", "1"], env=env, stdout=subprocess.PIPE) as worker:
        try:
            served = subprocess.run(serve, env=env, capture_output=True, text=True, timeout=120)
            assert served.returncode == 0, served.stderr
            assert "rollout 1/1  reward 1.000" in served.stdout
            assert served.stderr.count(f"the fleet is served at http://127.0.0.1:{port}; start workers") == 1
            assert "joined the fleet (1 so far)" in served.stderr
            said = worker.communicate(timeout=60)[0].decode().splitlines()
            assert said[0] == f"imported {tmp_path / 'agents.py'}:solve; up to 3 agents run at once"
            assert f"connected to http://127.0.0.1:{port} as " in said[-2]
            assert said[-1] == "the run has ended: 4 done"
            assert worker.returncode == 0
        finally:
            worker.kill()
    written = (tmp_path / "run" / "run.toml").read_text("utf-8")
    assert "max_turns = 5" in written.partition("[generator.agent_fleet]")[2]
    assert "a token for one test" not in written


def test_a_worker_needs_the_token_and_an_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLIME_FLEET_TOKEN", raising=False)
    assert run_cli(["agent", "work", "http://127.0.0.1:9", "./agents.py:solve"]) == 2
    assert "SLIME_FLEET_TOKEN is not set" in capsys.readouterr().err
    monkeypatch.setenv("SLIME_FLEET_TOKEN", "a token for one test")
    assert run_cli(["agent", "work", "http://127.0.0.1:9", str(tmp_path / "none.py:solve")]) == 2
    assert "none.py" in capsys.readouterr().err


def test_reachable_host_needs_public_url(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIME_FLEET_TOKEN", "a token for one test")
    run_file = write_run(tmp_path, 'agent = "./agents.py:solve"')
    assert run_cli(["agent", "serve", str(run_file), "--host", "0.0.0.0"]) == 2
    told = capsys.readouterr()
    assert "public_url" in told.err
    assert "http://0.0.0.0" not in told.out  # nothing is served
    monkeypatch.delenv("SLIME_FLEET_TOKEN")
    assert run_cli(["agent", "serve", str(run_file)]) == 2
    assert "export SLIME_FLEET_TOKEN=$(openssl rand -hex 16)" in capsys.readouterr().err
