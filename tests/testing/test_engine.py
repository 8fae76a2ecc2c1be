import asyncio

from slime_core import Status
from slime_core.roles import FinishReason
from slime_testing import CharTokenizer, ScriptedEngine, make_pending
from tests.tables import table


@table("finish, length", [(FinishReason.STOP, 4), (FinishReason.LENGTH, 8), (FinishReason.ABORT, 3)])
def test_the_scripted_engine_ends_as_it_is_told(finish: FinishReason, length: int) -> None:
    engine = ScriptedEngine(finish=finish)
    ctx = engine.context(max_new_tokens=8)
    out = asyncio.run(engine.generate(ctx.tokenizer.encode("2 + 2"), ctx.sampling))
    assert (out.finish, len(out.tokens), len(out.log_probs)) == (finish, length, length)
    assert (out.tokens[-1] in ctx.tokenizer.eos_token_ids) == (finish is FinishReason.STOP)


def test_the_character_tokenizer_renders_messages() -> None:
    tokenizer = CharTokenizer()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "2 + 2?"}])
    assert text == "user: 2 + 2?\nassistant: "
    assert tokenizer.decode([*tokenizer.encode(text), 0]) == text


def test_a_pending_sample_is_as_a_source_draws_it() -> None:
    assert make_pending(prompt="2 + 2").status is Status.PENDING
