"""What comes before attention: RMSNorm, the fused q/k/v product, per-head norms, rotary positions; one gradient."""

import torch
from torch import Tensor
from torch.autograd import Function

from slime_local.model.function import Context, call, zeros_if
from slime_local.model.norm import chunk_rows, norm_backward, rms_scale
from slime_local.model.product import add_product, rounded, times


def rotate(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor) -> None:
    """Rotary positions of x [..., heads, D] into `out`: pairs (i, i + D/2) turned by their angle; not in place."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    torch.mul(a, cos, out=out[..., :half]).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=out[..., half:]).addcmul_(a, sin)


class _InputContext(Context):
    heads: tuple[int, int]
    eps: float
    bf16: bool


class _AttentionInput(Function):
    @staticmethod
    def forward(
        ctx: _InputContext,
        x: Tensor,
        norm: Tensor,
        w: Tensor,
        bias: Tensor | None,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        heads: tuple[int, int],
        eps: float,
        bf16: bool,
    ) -> Tensor:
        n, d = x.shape
        total, dim = sum(heads) + heads[1], cos.shape[-1] * 2
        turned = sum(heads)
        out = x.new_empty(n, total, dim)
        raw = x.new_empty(n, turned, dim) if q_norm is not None else None
        chunk = chunk_rows(x)
        h, z = x.new_empty(min(n, chunk), d), x.new_empty(min(n, chunk), total * dim)
        factor = rounded(w, bf16)
        for s in range(0, n, chunk):
            xc = x[s : s + chunk]
            m = xc.shape[0]
            torch.mul(xc, rms_scale(xc, eps), out=h[:m]).mul_(norm)
            zc = times(h[:m], factor.t(), out=z[:m])
            if bias is not None:
                zc.add_(bias)
            zc = zc.view(m, total, dim)
            out[s : s + m, turned:] = zc[:, turned:]
            qk = zc[:, :turned]
            if raw is not None and q_norm is not None and k_norm is not None:
                raw[s : s + m] = qk
                qk = qk.mul_(rms_scale(qk, eps))
                qk[:, : heads[0]].mul_(q_norm)
                qk[:, heads[0] :].mul_(k_norm)
            rotate(qk, cos[s : s + m], sin[s : s + m], out[s : s + m, :turned])
        ctx.save_for_backward(x, norm, w, bias, q_norm, k_norm, cos, sin, raw)  # type: ignore[arg-type]  # None is fine
        ctx.heads, ctx.eps, ctx.bf16 = heads, eps, bf16
        return out

    @staticmethod
    def backward(ctx: _InputContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, norm, w, bias, q_norm, k_norm, cos, sin, raw = ctx.saved_tensors
        (d_out,) = grads
        heads, eps = ctx.heads, ctx.eps
        n = x.shape[0]
        total, dim, turned = d_out.shape[1], d_out.shape[2], sum(heads)
        dx = torch.empty_like(x)
        d_norm, d_w = torch.zeros_like(norm), zeros_if(ctx.needs_input_grad[2], w)
        d_bias = None if bias is None else torch.zeros_like(bias)
        d_qn, d_kn = (None, None) if q_norm is None else (torch.zeros_like(q_norm), torch.zeros_like(k_norm))
        chunk = chunk_rows(x)
        z = x.new_empty(min(n, chunk), total, dim)
        factor = rounded(w, ctx.bf16)
        for s in range(0, n, chunk):
            xc = x[s : s + chunk]
            m = xc.shape[0]
            dz = z[:m]
            dz[:, turned:] = d_out[s : s + m, turned:]
            rotate(d_out[s : s + m, :turned], cos[s : s + m], -sin[s : s + m], dz[:, :turned])
            if raw is not None and d_qn is not None and d_kn is not None:
                scale = rms_scale(raw[s : s + m], eps)
                hat = raw[s : s + m] * scale
                for part, weight, d_weight in (
                    (slice(0, heads[0]), q_norm, d_qn),
                    (slice(heads[0], turned), k_norm, d_kn),
                ):
                    dz[:, part], extra = norm_backward(dz[:, part], hat[:, part], weight, scale[:, part])
                    d_weight.add_(extra)
            dz = dz.view(m, -1)
            scale = rms_scale(xc, eps)
            x_hat = xc * scale
            if d_w is not None:
                add_product(d_w, dz.t(), x_hat, ctx.bf16)
            if d_bias is not None:
                d_bias.add_(dz.sum(0))
            dx[s : s + m], extra = norm_backward(times(dz, factor), x_hat, norm, scale)
            d_norm.add_(extra)
        if d_w is not None:
            d_w.mul_(norm)
        return dx, d_norm, d_w, d_bias, d_qn, d_kn, None, None, None, None, None


def attention_input(
    x: Tensor,
    norm: Tensor,
    w: Tensor,
    bias: Tensor | None,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    heads: tuple[int, int],
    eps: float,
    bf16: bool = False,
) -> Tensor:
    """RMSNorm, the fused q/k/v product, per-head norms if any, rotary positions.

    Args:
        x: [N, d].
        norm: [d], the layer's input norm.
        w: [(H + 2 KV) D, d], q over k over v; bias [(H + 2 KV) D].
        q_norm: [D] per-head norms of Qwen3, or None.
        k_norm: like q_norm.
        cos: [N, 1, D/2] of each token's position.
        sin: like cos.
        heads: (H, KV).
        eps: of every norm.
        bf16: rounds the factors of the product.

    Returns:
        [N, H + 2 KV, D]: rotated queries, rotated keys, values.
    """
    return call(_AttentionInput, x, norm, w, bias, q_norm, k_norm, cos, sin, heads, eps, bf16)
