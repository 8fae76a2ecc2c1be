"""What the kit gives authors of engines: versions of a model as a trainer publishes them, and a launcher."""

import asyncio
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slime_core.errors import WorkerError
from slime_core.roles import GivesFiles, WorkerGroupSpec
from slime_testing import make_launcher, publish_model, write_tiny_model


def test_a_model_is_published_as_it_is_and_then_as_zeros(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    own = load_file(model / "model.safetensors")
    for version in (0, 1, 0):
        channel = publish_model(model, tmp_path, version)
        assert isinstance(channel, GivesFiles)
        read = dict(channel.receiver(0).read(version))
        assert {slot.name: slot.shape for slot in channel.slots} == {name: each.shape for name, each in own.items()}
        assert all(
            torch.equal(read[name], each if version == 0 else torch.zeros_like(each)) for name, each in own.items()
        )
        assert load_file(channel.path_of(version)).keys() == own.keys()
    with pytest.raises(WorkerError, match="does not hold version 2"):
        next(iter(channel.receiver(0).read(2)))


def test_a_launcher_starts_processes_of_this_machine(tmp_path: Path) -> None:
    async def main() -> list[object]:
        launcher = make_launcher(tmp_path)
        try:
            spec = WorkerGroupSpec("kit", 2, "slime_testing.launched:Worker", {"start": 10})
            return await (await launcher.start(spec, timeout_s=60)).call("add", [1, 2])
        finally:
            await launcher.close()

    assert asyncio.run(main()) == [11, 12]
    assert (tmp_path / "kit-0.log").exists()
