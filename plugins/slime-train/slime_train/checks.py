"""Checks of the tensor roles' return values on a rank; an error ends the run on all ranks.

loss = check_loss(loss(batch), plugin="slime-loss-cispo", tokens=412)
"""

from collections.abc import Mapping
from typing import NoReturn

import torch

from slime_core.errors import ContractError
from slime_core.roles import CorrectionOutput, LossOutput


def check_advantages(returned: object, *, plugin: str, tokens: int) -> torch.Tensor:
    """An advantage estimator's advantages [T].

    Raises:
        ContractError: not a float tensor of [T], or one with values that are not finite.
    """
    where = f"advantage of plugin {plugin}"
    return _finite(where, _column(where, returned, tokens))


def check_loss(returned: object, *, plugin: str, tokens: int) -> LossOutput:
    """A loss's answer for a micro-batch of T tokens; whether it is finite is seen after the reduction.

    Raises:
        ContractError: not a `LossOutput`, or a loss, a regularizer or a metric that is not a float tensor of [T].
    """
    where = f"loss of plugin {plugin}"
    if not isinstance(returned, LossOutput):
        _refuse(where, "a LossOutput", returned)
    _column(f"{where}, loss_T", returned.loss_T, tokens)
    if returned.regularizer_T is not None:
        _column(f"{where}, regularizer_T", returned.regularizer_T, tokens)
    _check_metrics(where, returned.metrics_T, tokens)
    return returned


def check_correction(returned: object, *, plugin: str, loss_mask_T: torch.Tensor) -> CorrectionOutput:
    """A correction's answer for a micro-batch of T tokens.

    Raises:
        ContractError: not a `CorrectionOutput`, a column that is not a float tensor of [T], a weight that is negative
            or not finite, or a mask that is not 0 or 1 or puts tokens in.
    """
    where, tokens = f"correction of plugin {plugin}", len(loss_mask_T)
    if not isinstance(returned, CorrectionOutput):
        _refuse(where, "a CorrectionOutput", returned)
    weights_T = _finite(f"{where}, weights_T", _column(f"{where}, weights_T", returned.weights_T, tokens))
    if (weights_T < 0).any():
        raise ContractError(f"{where}, weights_T: holds {weights_T.min().item():g}; weights are 0 or more")
    mask_T = _column(f"{where}, loss_mask_T", returned.loss_mask_T, tokens)
    if not ((mask_T == 0) | (mask_T == 1)).all():
        raise ContractError(f"{where}, loss_mask_T: holds values other than 0 and 1")
    if (mask_T > loss_mask_T).any():
        raise ContractError(f"{where}, loss_mask_T: is 1 where it was 0; tokens are only taken out")
    _check_metrics(where, returned.metrics_T, tokens)
    return returned


def _check_metrics(where: str, metrics: Mapping[str, torch.Tensor], tokens: int) -> None:
    for name, values in metrics.items():
        _column(f"{where}, metric {name!r}", values, tokens)


def _column(where: str, returned: object, tokens: int) -> torch.Tensor:
    if not isinstance(returned, torch.Tensor):
        _refuse(where, f"a float tensor of [{tokens}]", returned)
    if returned.shape != (tokens,) or not returned.is_floating_point():
        raise ContractError(
            f"{where}: expected a float tensor of [{tokens}], got {returned.dtype} {list(returned.shape)}; "
            "one number a response token"
        )
    return returned


def _finite(where: str, values: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(values).all():
        raise ContractError(f"{where}: holds NaN or infinity")
    return values


def _refuse(where: str, expected: str, returned: object) -> NoReturn:
    raise ContractError(f"{where}: expected {expected}, got {type(returned).__name__} {returned!r:.80}")
