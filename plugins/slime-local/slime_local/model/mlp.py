"""The gated MLP with its norm and residual, as one autograd function over chunks of tokens."""

import torch
from torch import Tensor
from torch.autograd import Function

from slime_local.model.ops import (
    Context,
    add_product,
    call,
    chunk_rows,
    norm_backward,
    plus_times,
    rms_scale,
    rounded,
    times,
    zeros_if,
)


class _MlpContext(Context):
    eps: float
    bf16: bool


class _GatedMlp(Function):
    @staticmethod
    def forward(
        ctx: _MlpContext, x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float, bf16: bool
    ) -> Tensor:
        n, d = x.shape
        f = down.shape[1]
        gu, y = x.new_empty(n, 2 * f), torch.empty_like(x)
        chunk = chunk_rows(x)
        h, a = x.new_empty(min(n, chunk), d), x.new_empty(min(n, chunk), f)
        w_in, w_out = rounded(gate_up, bf16), rounded(down, bf16)
        for s in range(0, n, chunk):
            xc = x[s : s + chunk]
            m = xc.shape[0]
            torch.mul(xc, rms_scale(xc, eps), out=h[:m]).mul_(norm)
            g = times(h[:m], w_in.t(), out=gu[s : s + m])
            torch.sigmoid(g[:, :f], out=a[:m]).mul_(g[:, :f]).mul_(g[:, f:])
            plus_times(xc, a[:m], w_out.t(), out=y[s : s + m])
        ctx.save_for_backward(x, norm, gate_up, down, gu)
        ctx.eps, ctx.bf16 = eps, bf16
        return y

    @staticmethod
    def backward(ctx: _MlpContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, norm, gate_up, down, gu = ctx.saved_tensors
        (dy,) = grads
        n, f = x.shape[0], down.shape[1]
        dx = torch.empty_like(x)
        d_norm = torch.zeros_like(norm)
        d_gate_up, d_down = zeros_if(ctx.needs_input_grad[2], gate_up), zeros_if(ctx.needs_input_grad[3], down)
        w_in, w_out = rounded(gate_up, ctx.bf16), rounded(down, ctx.bf16)
        chunk = chunk_rows(x)
        size = min(n, chunk)
        d_act, sig, silu, d_gu = (x.new_empty(size, k) for k in (f, f, f, 2 * f))
        for s in range(0, n, chunk):
            xc, dyc = x[s : s + chunk], dy[s : s + chunk]
            m = xc.shape[0]
            gate, up = gu[s : s + m, :f], gu[s : s + m, f:]
            da = times(dyc, w_out, out=d_act[:m])
            sg = torch.sigmoid(gate, out=sig[:m])
            act = torch.mul(sg, gate, out=silu[:m])
            torch.mul(da, act, out=d_gu[:m, f:])
            # silu'(g) = sig + silu (1 - sig)
            torch.sub(1, sg, out=d_gu[:m, :f]).mul_(act).add_(sg).mul_(da).mul_(up)
            if d_down is not None:
                add_product(d_down, dyc.t(), act.mul_(up), ctx.bf16)
            scale = rms_scale(xc, ctx.eps)
            x_hat = xc * scale
            if d_gate_up is not None:
                add_product(d_gate_up, d_gu[:m].t(), x_hat, ctx.bf16)
            d_in, extra = norm_backward(times(d_gu[:m], w_in), x_hat, norm, scale)
            torch.add(d_in, dyc, out=dx[s : s + m])
            d_norm.add_(extra)
        if d_gate_up is not None:
            d_gate_up.mul_(norm)
        return dx, d_norm, d_gate_up, d_down, None, None


def gated_mlp(x: Tensor, norm: Tensor, gate_up: Tensor, down: Tensor, eps: float, bf16: bool = False) -> Tensor:
    """The layer's second half: x + down(silu(gate(h)) * up(h)) with h = RMSNorm(x).

    Args:
        x: [N, d].
        norm: [d].
        gate_up: [2 F, d], gate over up.
        down: [d, F].
        eps: of the norm.
        bf16: rounds the factors of its products.
    """
    return call(_GatedMlp, x, norm, gate_up, down, eps, bf16)
