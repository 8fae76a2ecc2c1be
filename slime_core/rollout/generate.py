"""SingleTurn: the default generator: encode the prompt, one engine call, decode the response."""

from collections.abc import Sequence

from slime_core.data.messages import read_messages, read_tools, refuse_media
from slime_core.data.rendering import Renderer
from slime_core.errors import DataError
from slime_core.roles import FinishReason, GenerateContext, GenerateOutput, SamplingParams, Tokenizer
from slime_core.sample import Sample, Status

STATUS_OF_FINISH = {
    FinishReason.STOP: Status.COMPLETED,
    FinishReason.LENGTH: Status.TRUNCATED,
    FinishReason.ABORT: Status.ABORTED,
}
"""What a response's end makes of its sample."""


def response_text(tokenizer: Tokenizer, output: GenerateOutput, sampling: SamplingParams) -> str:
    """The text of a response, with or without special tokens and the stop text that ended it, as was asked."""
    text = text_of(tokenizer, output.tokens, sampling)
    if isinstance(output.matched, str) and not sampling.no_stop_trim:
        text = text.partition(output.matched)[0]
    return text


def text_of(tokenizer: Tokenizer, tokens: Sequence[int], sampling: SamplingParams) -> str:
    """Tokens as text, special ones left out or not, as was asked."""
    if sampling.skip_special_tokens:
        return tokenizer.decode(tokens)
    return tokenizer.decode(tokens, skip_special_tokens=False)


class SingleTurn:
    """Implements `slime_core.roles.Generator`."""

    CACHED_PROMPTS = 1024

    def __init__(self) -> None:
        """Nothing is encoded yet."""
        self._ids: dict[str, Sequence[int]] = {}
        self._tokenizer: Tokenizer | None = None
        self._renderer: Renderer | None = None

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """One response to `sample.prompt`, text or messages."""
        prompt = self._encode(sample, ctx.tokenizer)
        output = await ctx.generate(prompt, ctx.sampling)
        sample.tokens = prompt
        sample.append_response_tokens(output=output, text=response_text(ctx.tokenizer, output, ctx.sampling))
        sample.status = STATUS_OF_FINISH[output.finish]
        return [sample]

    def _encode(self, sample: Sample, tokenizer: Tokenizer) -> Sequence[int]:
        """Ids of the prompt; the samples of a group share one encoding."""
        text = self.prompt_text(sample, tokenizer)
        if tokenizer is not self._tokenizer or len(self._ids) >= self.CACHED_PROMPTS:
            self._ids, self._tokenizer = {}, tokenizer
        ids = self._ids.get(text)
        if ids is None:
            ids = self._ids[text] = tuple(tokenizer.encode(text))
        return ids

    def prompt_text(self, sample: Sample, tokenizer: Tokenizer) -> str:
        """What the model continues: a text prompt as it is, messages rendered.

        Raises:
            DataError: the messages cannot be used, as those of a row that is rendered when it is read.
            ModelError: the model has no chat template.
        """
        messages = sample.prompt
        if isinstance(messages, str):
            return messages
        kwargs = sample.apply_chat_template_kwargs
        if self._renderer is None or not self._renderer.is_of(tokenizer, kwargs):
            self._renderer = Renderer(tokenizer, kwargs)
        read, tools = read_messages([*messages], "prompt"), read_tools(sample.metadata.get("tools"), "tools")
        if read and read[-1]["role"] == "assistant":
            raise DataError("the prompt ends with an assistant message: remove it, or make the prompt a text")
        refuse_media(read)
        return self._renderer.prompt(read, tools).text
