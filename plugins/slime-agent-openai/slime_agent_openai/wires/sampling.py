r"""How a reply is to be sampled and told: what protocols write alike, and what engines take beside them.

Example:

    sampling_of(Value({"temperature": 0.7, "best_of": 1}))      # (Wanted("temperature", 0.7, "temperature"),)
    stop_texts(Value("\n\n"))                                   # ("\n\n",)
"""

from collections.abc import Callable, Mapping

from slime_agent_openai.request import Wanted
from slime_agent_openai.wires.reading import Value
from slime_core.roles import RANGES
from slime_core.sample import Json


def sampling_of(asked: Value) -> tuple[Wanted, ...]:
    """What a request wants of the draw, in the words of any protocol or engine.

    Raises:
        ApiError: a value is none of its setting.
    """
    found = []
    for at in asked.given(SETTINGS):
        setting, read = SETTINGS[at.path]
        found.append(Wanted(at.path, read(at), setting))
    found += [Wanted(at.path) for at in asked.given(UNDRAWN) if at.json not in UNDRAWN[at.path]]
    return tuple(found)


def number(asked: Value, name: str, most: float) -> float:
    """A setting that a reply repeats; 1 if it is not given."""
    given = asked.at(name).number(0, most)
    return 1.0 if given is None else given


def stop_texts(stop: Value) -> tuple[str, ...]:
    """Texts that end a reply: one, or a list of them."""
    texts = [stop] if isinstance(stop.json, str) else list(stop.each())
    for text in texts:
        if not text.text():
            raise text.wrong("a text of at least a character")
    return tuple(text.text() for text in texts)


def wants_usage(asked: Value) -> bool:
    """Whether a stream shall tell how many tokens it took."""
    options = asked.at("stream_options")
    return options.is_given and options.at("include_usage").flag()


def _within(name: str, most: float | None = None) -> Callable[[Value], float]:
    """Reads a setting of `SamplingParams` in the range that it has everywhere, or up to a protocol's own `most`."""
    allowed = RANGES[name]

    def read(at: Value) -> float:
        value = at.number(allowed.least, most or allowed.most) or 0.0
        if value not in allowed:
            raise at.wrong(f"a number {allowed}")
        return value

    return read


def _top_k(at: Value) -> float:
    return at.whole(-1) or -1  # some engines write 0 for all


def _count(at: Value) -> float:
    return at.whole(0) or 0


SETTINGS: Mapping[str, tuple[str, Callable[[Value], float]]] = {
    "temperature": ("temperature", _within("temperature", most=2)),
    "top_p": ("top_p", _within("top_p")),
    "top_k": ("top_k", _top_k),
    "min_p": ("min_p", _within("min_p")),
    "presence_penalty": ("presence_penalty", _within("presence_penalty")),
    "frequency_penalty": ("frequency_penalty", _within("frequency_penalty")),
    "repetition_penalty": ("repetition_penalty", _within("repetition_penalty")),
    "repeat_penalty": ("repetition_penalty", _within("repetition_penalty")),
    "min_tokens": ("min_new_tokens", _count),
    "min_new_tokens": ("min_new_tokens", _count),
    "ignore_eos": ("ignore_eos", Value.flag),
}
"""By field: which setting of `SamplingParams` it is, and what reads it. vLLM, SGLang and llama.cpp take them all."""
UNDRAWN: Mapping[str, tuple[Json, ...]] = {
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "best_of": (1,),
    "custom_logit_processor": ("",),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "mirostat": (0,),
    "no_repeat_ngram_size": (0,),
    "stop_regex": ("", []),
    "stop_token_ids": ([],),
    "tfs_z": (1,),
    "top_a": (0,),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
}
"""Fields by which engines draw otherwise, and nothing here does; each with the values that ask for nothing."""
SAMPLING = frozenset({*SETTINGS, *UNDRAWN})
"""All such fields. `seed` is none: the run's own seeds draw, from the same distribution."""
