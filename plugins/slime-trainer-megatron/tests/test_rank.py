"""One rank in this process: its replacements for CUDA, packing, positions, checkpoints, and errors for bad ones."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from models_and_steps import STRETCHED, dealt, setup_of, steps_of, write_model
from safetensors.torch import load_file, save_file

from slime_core.errors import CheckpointError, ModelError, NonFiniteError
from slime_core.roles import Choice, Critic, Optim, Reference, StepResult
from slime_train import Share
from slime_train.estimators.ppo import PpoSettings
from slime_train.settings import TisSettings
from slime_trainer_megatron import compat
from slime_trainer_megatron.packing import pack_samples, rank_token_indices
from slime_trainer_megatron.rank import MegatronRank, use_device
from tests.tables import table

ONE = {"num_gpus": 1}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model", "llama", rope_parameters=STRETCHED)


def share_of(model: Path, folder: Path) -> Share:
    (rows,) = steps_of(model, 1)
    return Share.of(dealt(rows, 1)[0], setup_of(model, folder, ONE))


def test_torch_stand_in_is_limited_to_megatron() -> None:
    import megatron.core.optimizer.optimizer as theirs

    use_device("cpu", 0)
    assert isinstance(theirs.__dict__["torch"], compat.ModuleProxy)
    assert theirs.torch.zeros(2, device="cuda").device == CPU
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(2, device="cuda")
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(2).cuda()
    with compat.fake_cuda():
        assert torch.zeros(2).cuda().device == CPU
        assert torch.zeros(2).is_cuda
        assert not torch.zeros(2).cpu().pin_memory().is_cuda
    assert not torch.zeros(2).is_cuda


def test_megatron_is_unpatched_on_a_gpu() -> None:
    program = (
        "import sys, torch\n"
        "from slime_trainer_megatron import compat\n"
        "with compat.suppress_import_warnings():\n"
        "    from megatron.core.optimizer import optimizer\n"
        "before = {name: dict(each.__dict__) for name, each in sys.modules.items() if name.startswith('megatron')}\n"
        "compat.replace_cuda(torch.device('cuda'))\n"
        "with compat.fake_cuda():\n"
        "    print(torch.zeros(2).is_cuda, torch.Tensor.cuda is torch._C.TensorBase.cuda)\n"
        "print([n for n, each in before.items() if any(sys.modules[n].__dict__[k] is not v for k, v in each.items())])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert answer == "False True\n[]\n"


def test_transformers_still_loads_models_exactly(model: Path) -> None:
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).state_dict()
    assert all(torch.equal(loaded[name], each) for name, each in load_file(model / "model.safetensors").items())


def test_non_finite_weight_is_named(model: Path, tmp_path: Path) -> None:
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, ONE))
    first, second = (dealt(rows, 1)[0] for rows in steps_of(model, 2))
    rank.train_step(first)
    (part,) = rank.optimizer.megatron.chained_optimizers
    next(iter(part.optimizer.state.values()))["exp_avg"].view(-1)[0] = float("inf")  # as after an overflow
    with pytest.raises(NonFiniteError, match=r"optimizer step 2: weight \S+ has 1 of \d+ values that are not finite"):
        rank.train_step(second)


@pytest.mark.parametrize(("ranks", "multiple"), [(1, 1), (1, 4), (2, 1), (2, 2), (2, 3), (3, 2)])
def test_context_parallel_ranks_cover_each_token_once(ranks: int, multiple: int, model: Path, tmp_path: Path) -> None:
    share = share_of(model, tmp_path)
    packs = [pack_samples(share, [0, 3, 9], (rank, ranks), multiple) for rank in range(ranks)]
    wanted = torch.cat([pack.wanted for pack in packs])
    assert sorted(wanted.tolist()) == list(range(packs[0].responses))
    tokens = [list(share.batch.tokens_T[share.starts_S[each] : share.starts_S[each + 1]]) for each in (0, 3, 9)]
    labels = torch.zeros(len(wanted), dtype=torch.int64).index_copy(
        0, wanted, torch.cat([pack.labels for pack in packs])
    )
    assert labels.tolist() == [token for response in tokens for token in response]
    assert {len(pack.tokens) % multiple for pack in packs} == {0}
    assert len({len(pack.tokens) for pack in packs}) == 1
    whole = torch.cat([rank_token_indices(packs[0].ends, ranks, rank) for rank in range(ranks)])
    assert sorted(whole.tolist()) == list(range(int(packs[0].ends[-1])))


@pytest.mark.parametrize(("ranks", "multiple"), [(1, 2), (2, 1), (2, 2)])
def test_empty_share_is_padding(ranks: int, multiple: int, model: Path, tmp_path: Path) -> None:
    pack = pack_samples(share_of(model, tmp_path), [], (0, ranks), multiple)
    assert len(pack.tokens) % multiple == 0 < len(pack.tokens)
    assert len(pack.rows) == pack.responses == 0


def test_a_checkpoint_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, ONE))
    save(rank, tmp_path / "saved")
    about = tmp_path / "saved" / "optim" / "megatron.json"
    description = json.loads(about.read_text("utf-8"))
    about.write_text(json.dumps({**description, "model": {**description["model"], "hidden": 64}}), "utf-8")
    with pytest.raises(CheckpointError, match="another model: hidden differ"):
        rank.load(tmp_path / "saved")


def test_partial_checkpoint_is_refused(model: Path, tmp_path: Path) -> None:
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, ONE))
    with pytest.raises(CheckpointError, match="incomplete, or another trainer wrote it"):
        rank.load(tmp_path / "nothing")
    save(rank, tmp_path / "saved")
    (piece,) = (tmp_path / "saved" / "optim").glob("*.distcp")
    piece.write_bytes(piece.read_bytes()[:100_000])
    with pytest.raises(CheckpointError, match="is incomplete: "):
        rank.load(tmp_path / "saved")
    piece.unlink()
    with pytest.raises(CheckpointError, match=f"{tmp_path}/saved/optim is incomplete: it has no file '__0_0.distcp'"):
        rank.load(tmp_path / "saved")
    (tmp_path / "saved" / "optim" / ".metadata").unlink()
    with pytest.raises(CheckpointError, match="incomplete, or is not a torch_dist checkpoint"):
        rank.load(tmp_path / "saved")


def test_checkpoint_has_the_weights_at_save_time(model: Path, tmp_path: Path) -> None:
    first, second = (dealt(rows, 1)[0] for rows in steps_of(model, 2))
    one, other = (MegatronRank(0, 1, setup_of(model, tmp_path, ONE)) for _ in range(2))
    one.train_step(first)
    then = {name: each.clone() for name, each in one.weights()}
    one.save(tmp_path / "saved")
    one.train_step(second)
    assert one.finish_save(wait=True)
    other.load(tmp_path / "saved")
    assert all(torch.equal(then[name], each) for name, each in other.weights())
    other.train_step(second)
    assert all(torch.equal(mine, theirs) for (_, mine), (_, theirs) in zip(one.weights(), other.weights(), strict=True))


def test_failed_checkpoint_write_is_an_error(model: Path, tmp_path: Path) -> None:
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, ONE))
    (tmp_path / "saved" / "optim" / "__0_0.distcp").mkdir(parents=True)
    rank.save(tmp_path / "saved", hf=False)
    with pytest.raises(CheckpointError, match="saved/optim cannot be written: rank 0: IsADirectoryError"):
        rank.finish_save(wait=True)


def test_hf_files_respect_max_shard_size(model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    rank = MegatronRank(0, 1, setup_of(model, tmp_path, {**ONE, "max_shard_size": "100KiB"}))
    rank.save(tmp_path / "saved")
    files = list((tmp_path / "saved" / "hf").glob("*.safetensors"))
    assert len(files) > 3
    assert max(path.stat().st_size for path in files) < 110 * 1024
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / "hf").state_dict()
    assert all(torch.equal(loaded[name], each) for name, each in rank.weights())
    rank.finish_save(wait=True)


def test_missing_weight_is_refused(model: Path, tmp_path: Path) -> None:
    broken = write_model(tmp_path / "broken", "llama")
    tensors = load_file(broken / "model.safetensors")
    tensors.pop("model.norm.weight")
    save_file(tensors, broken / "model.safetensors")
    with pytest.raises(ModelError, match=r"no weight 'model\.norm\.weight'"):
        MegatronRank(0, 1, setup_of(broken, tmp_path, ONE))


def test_measure_returns_the_loss_without_a_step(model: Path, tmp_path: Path) -> None:
    (rows,) = steps_of(model, 1)
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, ONE))
    before = {name: each.clone() for name, each in rank.weights()}
    measured = rank.measure(dealt(rows, 1)[0])
    assert all(torch.equal(before[name], each) for name, each in rank.weights())
    assert measured.scalars == {}
    assert rank.train_step(dealt(rows, 1)[0]).metrics["loss"] == pytest.approx(measured.metrics["loss"])


def variants(model: Path, folder: Path) -> dict[str, dict[str, object]]:
    """Settings and fields of a rank's setup, by topic."""
    ppo = Choice("advantage", "slime-train/ppo", "slime-train", PpoSettings())
    tis = Choice("correction", "slime-train/tis", "slime-train", TisSettings())
    critic = Critic(model, Optim(1e-4, 0, "constant", 0.0, 0.9, 0.95, 1e-8, 0.01, 1.0, train_steps=10), 0.2, 1)
    kept = str(folder / "{rollout_id}-{rank}.safetensors")
    return {
        "policy": {},
        "bf16": {"bf16": True},
        "frozen": {"settings": {"only_train_params_name_list": [r"layers\.3\."]}},
        "reference": {"reference": Reference(model, update_interval=1, use_kl_loss=True, kl_loss_coef=0.5)},
        "critic": {"advantage": ppo, "critic": critic},
        "older weights": {"correction": tis, "old_actor_lag": 1, "train_data": kept},
    }


def same(one: MegatronRank, other: MegatronRank) -> bool:
    return all(torch.equal(mine, theirs) for (_, mine), (_, theirs) in zip(one.weights(), other.weights(), strict=True))


def save(rank: MegatronRank, folder: Path, *, hf: bool = False) -> Path:
    rank.save(folder, hf=hf)
    assert rank.finish_save(wait=True)
    return folder


@table("name", variants(Path(), Path()))
def test_resume_is_bit_exact(model: Path, tmp_path: Path, name: str) -> None:
    def made() -> MegatronRank:
        fields = variants(model, tmp_path)[name]
        settings = {**ONE, **fields.pop("settings", {})}  # type: ignore[dict-item]
        return MegatronRank(0, 1, setup_of(model, tmp_path, settings, **fields))

    def rollout(rank: MegatronRank, number: int) -> StepResult:
        result = rank.train_step(dealt(steps[number], 1, number)[0])
        rank.published(number + 1)
        return result

    steps, one, other = steps_of(model, 4), made(), made()
    one.published(0)
    before = [each.clone() for _, each in one.weights()]
    first = rollout(one, 0)
    assert ("grad_norm" in first.scalars) == (name != "critic"), "the critic is trained alone at first"
    assert name != "critic" or all(torch.equal(old, new) for old, (_, new) in zip(before, one.weights(), strict=True))
    second = rollout(one, 1)
    if name == "reference":
        assert second.metrics["kl_loss"] == pytest.approx(0.0, abs=1e-6), "it is the policy of this moment"
    if name == "older weights":
        olds = [load_file(tmp_path / f"{number}-0.safetensors")["0/old_log_probs_T"] for number in (0, 1)]
        assert second.metrics["ppo_kl"] != 0.0
        assert len(olds[0]) == len(dealt(steps[0], 1)[0].tokens_T)
    other.load(save(one, tmp_path / name))
    other.published(2)
    for number in (2, 3):
        assert rollout(one, number) == rollout(other, number)
    assert same(one, other)


def test_checkpoint_without_a_critic_is_refused(model: Path, tmp_path: Path) -> None:
    saved = save(MegatronRank(0, 1, setup_of(model, tmp_path, ONE)), tmp_path / "plain")
    with pytest.raises(CheckpointError, match="has no critic"):
        MegatronRank(0, 1, setup_of(model, tmp_path, ONE, **variants(model, tmp_path)["critic"])).load(saved)


def test_optimizer_states_reset_each_rollout(model: Path, tmp_path: Path) -> None:
    """The second rollout's step equals the step of a rank that starts with these weights."""
    (rows,) = steps_of(model, 1)
    about = replace(setup_of(model, tmp_path, ONE).optim, lr=1e-2)
    resets = {"optim": replace(about, reset_optimizer_states=True)}
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, ONE, **resets))
    plain = MegatronRank(0, 1, setup_of(model, tmp_path, ONE, optim=about))
    for each in (rank, plain):
        each.train_step(dealt(rows, 1, 0)[0])
    save(rank, tmp_path / "after", hf=True)
    anew = MegatronRank(0, 1, setup_of(tmp_path / "after" / "hf", tmp_path, ONE, optim=about))
    for each in (rank, plain, anew):
        each.train_step(dealt(rows, 1, 1)[0])
    assert same(rank, anew)
    assert not same(rank, plain)
