"""What the core offers of the tensor roles: every choice builds its class from its settings and says what it needs."""

import re
from collections.abc import Callable
from pathlib import Path

import slime_train.estimators
from slime_core.roles import AdvantageSpec, LossSpec, Settings, Setup, Spec
from slime_train.corrections import Icepop, Mis, Tis
from slime_train.estimators import estimators
from slime_train.estimators.gdpo import Gdpo, GdpoSettings
from slime_train.estimators.gpg import Gpg
from slime_train.estimators.grpo import Grpo, GrpoSettings
from slime_train.estimators.max_rl import MaxRl
from slime_train.estimators.ppo import Ppo, PpoSettings
from slime_train.estimators.reinforce_plus_plus import ReinforcePlusPlus, ReinforcePlusPlusSettings
from slime_train.estimators.reinforce_plus_plus_baseline import (
    ReinforcePlusPlusBaseline,
    ReinforcePlusPlusBaselineSettings,
)
from slime_train.estimators.rloo import Rloo
from slime_train.losses import CispoLoss, GspoLoss, PolicyLoss, SftLoss
from slime_train.settings import (
    CispoSettings,
    GspoSettings,
    IcepopSettings,
    MisSettings,
    PolicyLossSettings,
    TisSettings,
)
from slime_train.specs import corrections, losses
from slime_train.whitened import EstimatorSettings
from tests.tables import table

GDPO = GdpoSettings(reward_weights={"math": 1.0, "form": 0.5})
ADVANTAGES: list[tuple[str, type[object], Settings, bool, tuple[str, ...], bool]] = [
    ("grpo", Grpo, GrpoSettings(grpo_std_normalization=False), False, (), False),
    ("gdpo", Gdpo, GDPO, False, ("math", "form"), False),
    ("rloo", Rloo, EstimatorSettings(), False, (), False),
    ("max_rl", MaxRl, EstimatorSettings(normalize_advantages=True), False, (), False),
    ("gpg", Gpg, Settings(), False, (), False),
    ("reinforce_plus_plus", ReinforcePlusPlus, ReinforcePlusPlusSettings(gamma=0.5), True, (), False),
    (
        "reinforce_plus_plus_baseline",
        ReinforcePlusPlusBaseline,
        ReinforcePlusPlusBaselineSettings(),
        True,
        (),
        False,
    ),
    ("ppo", Ppo, PpoSettings(lambd=0.5), True, (), True),
]
LOSSES: list[tuple[str, type[object], Settings, bool]] = [
    ("policy_loss", PolicyLoss, PolicyLossSettings(eps_clip=0.1), True),
    ("gspo", GspoLoss, GspoSettings(eps_clip=0.1, eps_clip_high=0.2), True),
    ("cispo", CispoLoss, CispoSettings(eps_clip=0.1), True),
    ("sft_loss", SftLoss, Settings(), False),
]
CORRECTIONS: list[tuple[str, type[object], Settings]] = [
    ("tis", Tis, TisSettings(tis_clip=3.0)),
    ("icepop", Icepop, IcepopSettings(tis_clip=3.0)),
    ("mis", Mis, MisSettings(mis_upper_bound=3.0)),
]


def nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def assert_offered(spec: Spec[object], name: str, kind: type[object], settings: Settings) -> None:
    assert (spec.name, spec.settings) == (name, type(settings))
    built = spec.factory(settings, Setup(nothing, 0))
    assert type(built) is kind
    if vars(built):
        assert list(vars(built).values()) == [settings]


def test_every_file_of_the_room_offers_the_estimator_of_its_name() -> None:
    files = {path.stem for path in Path(slime_train.estimators.__file__).parent.glob("[!_]*.py")}
    assert {spec.name for spec in estimators()} == files


def test_every_estimator_says_what_it_reads() -> None:
    found = {spec.name: spec for spec in estimators()}
    assert all(type(spec) is AdvantageSpec for spec in found.values())
    for name, kind, settings, uses_kl, keys, uses_values in ADVANTAGES:
        spec = found[name]
        assert_offered(spec, name, kind, settings)
        assert (spec.uses_kl_penalty, spec.uses_values) == (uses_kl, uses_values)
        assert tuple(spec.reward_keys(settings)) == keys
        assert spec.compares_samples(settings) is (name in ("grpo", "gdpo", "rloo", "max_rl", "gpg"))
    assert not found["grpo"].compares_samples(GrpoSettings(rewards_normalization=False))


def test_every_loss_says_whether_advantages_are_all_it_learns_from() -> None:
    found = list(losses())
    assert all(type(spec) is LossSpec for spec in found)
    for spec, (name, kind, settings, uses_advantages) in zip(found, LOSSES, strict=True):
        assert_offered(spec, name, kind, settings)
        assert spec.uses_advantages is uses_advantages
        assert spec.zero_without_advantage(settings) is uses_advantages
        if uses_advantages:
            assert spec.zero_without_advantage(settings.model_copy(update={"entropy_coef": 1e-3})) is False


def test_every_correction_is_built_from_its_settings() -> None:
    for spec, (name, kind, settings) in zip(corrections(), CORRECTIONS, strict=True):
        assert_offered(spec, name, kind, settings)


@table("offers", [estimators, losses, corrections])
def test_a_summary_begins_as_a_sentence_does(offers: Callable[[], list[Spec[object]]]) -> None:
    for spec in offers():
        assert re.match(r"[A-Z][a-z]+ ?", spec.summary), spec.name
