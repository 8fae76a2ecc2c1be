"""`slime ledger`: what became of the groups of a run."""

from tests.conftest import Project, Slime


def test_the_accounts_of_a_run(project: Project, slime: Slime) -> None:
    """Of two rollouts of four groups; then with a line gone, and with one group trained twice and another never."""
    assert slime("train", "run.toml").code == 0
    run, path = project.run, project.run / "ledger.jsonl"
    ran = slime.ok("ledger", run)
    assert "groups   8: drawn 0  finished 0  buffered 0  trained 8  dropped 0" in ran.out
    assert "saved    rollout_000002: trained 8" in ran.out
    assert "balanced" in ran.out
    found = slime("ledger", run, "--json").json()
    assert found["states"]["trained"] == found["checkpoint"]["states"]["trained"] == found["uses"]["total"] == 8
    assert (found["schema_version"], found["moves_since"], found["problems"]) == (1, 0, [])
    trained = slime("ledger", run, "--state", "trained").out.split()
    assert len(set(trained)) == 8
    assert slime("ledger", run, "--state", "dropped", "--json").json()["groups"] == []
    history = slime("ledger", run, "--group", trained[0])
    assert [line.split()[2] for line in history.out.splitlines()] == ["drawn", "finished", "buffered", "trained"]
    moves = slime("ledger", run, "--group", trained[0], "--json").json()["moves"]
    assert moves[-1] == {"id": trained[0], "state": "trained", "rollout_id": 0, "use": 1}

    assert "has no group 'nobody': groups are named source:eEPOCH:rROW:dDRAW" in slime.refused(
        "ledger", run, "--group", "nobody"
    )
    assert slime("ledger", run, "--group", "x", "--state", "drawn").code == 2
    assert "cannot read the ledger" in slime.refused("ledger", project.root / "nowhere")

    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "finished" not in line))
    ran = slime("ledger", run)
    assert ran.code == 1
    assert "cannot become buffered: it is drawn" in ran.out
    assert slime("ledger", run, "--json").code == 1

    first, last = (next(each for each in order if '"trained"' in each) for order in (lines, lines[::-1]))
    lines[lines.index(last)] = last.replace(last.split('"')[3], first.split('"')[3])
    path.write_text("".join(lines))
    ran = slime("ledger", run)
    assert ran.code == 1
    assert "rollout_000002 does not match this ledger" in ran.out
    assert "was changed: its first" in slime.refused("resume", run, "--num-rollout", "3")
    assert path.read_text() == "".join(lines)
