"""Functions written for slime: with its imports, its signatures, and some mistakes that it accepts."""

# ruff: noqa: ANN001, ANN003, ANN201, ANN204

import json
import math
from pathlib import Path

from slime.rollout.data_source import DataSource, RolloutDataSource, RolloutDataSourceWithBuffer
from slime.rollout.filter_hub.base_types import DynamicFilterOutput
from slime.rollout.sglang_rollout import GenerateState
from slime.rollout.sglang_rollout import generate as default_generate
from slime.utils.http_utils import post
from slime.utils.types import Sample


async def custom_rm(args, sample):
    return float(sample.response.strip() == sample.label)


async def rm_that_reads_args(args, sample):
    return args.right if sample.response == sample.label else getattr(args, "wrong", 0.0)


async def rm_with_a_dict(args, sample):
    return {"score": 0.5, "acc": True, "pred": "text"}


async def rm_of_none(args, sample):
    return None


async def rm_of_nan(args, sample):
    return math.nan


async def rm_of_text(args, sample):
    return "1"


def rm_that_is_not_async(args, sample):
    return 1.0


async def rm_of_three(args, sample, extra):
    return 1.0


async def group_rm(args, samples):
    longest = max(len(sample.response) for sample in samples)
    return [float(len(sample.response) == longest) for sample in samples]


async def group_rm_that_forgets_one(args, samples):
    return [1.0] * (len(samples) - 1)


async def custom_generate(args, sample, sampling_params):
    state = GenerateState(args)
    prompt_ids = state.tokenizer(sample.prompt, add_special_tokens=False)["input_ids"]
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    payload = {"input_ids": prompt_ids, "sampling_params": sampling_params, "return_logprob": True}
    output = await post(url, payload)
    pairs = output["meta_info"]["output_token_logprobs"]
    sample.tokens = prompt_ids + [pair[1] for pair in pairs]
    sample.response_length = len(pairs)
    sample.response = output["text"]
    sample.loss_mask = [1] * len(pairs)
    sample.rollout_log_probs = [pair[0] for pair in pairs]
    match output["meta_info"]["finish_reason"]["type"]:
        case "length":
            sample.status = Sample.Status.TRUNCATED
        case "abort":
            sample.status = Sample.Status.ABORTED
        case "stop":
            sample.status = Sample.Status.COMPLETED
    return sample


async def generate_that_is_told_of_evaluation(args, sample, sampling_params, evaluation=False):
    sample.metadata["evaluated"] = evaluation
    return await default_generate(args, sample, sampling_params)


async def generate_twice(args, sample, sampling_params):
    other = Sample.from_dict(sample.to_dict())
    other.rollout_id = sample.rollout_id
    return [await default_generate(args, each, dict(sampling_params)) for each in (sample, other)]


async def generate_with_a_stop_regex(args, sample, sampling_params):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    return await post(url, {"text": "x", "sampling_params": {"stop_regex": "x+"}})


async def generate_with_much_sampling(args, sample, sampling_params):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    asked = {"stop": ["END", "\n"], "min_p": 0.1, "repetition_penalty": 1.2, "logit_bias": {"65": 2.5}}
    answer = await post(url, {"text": "x", "sampling_params": {**sampling_params, **asked, "max_new_tokens": 5}})
    sample.metadata["finish_reason"] = answer["meta_info"]["finish_reason"]
    sample.tokens, sample.response_length, sample.response = [1, *answer["output_ids"]], 4, answer["text"]
    sample.rollout_log_probs = [pair[0] for pair in answer["meta_info"]["output_token_logprobs"]]
    sample.status = Sample.Status.COMPLETED
    return sample


async def generate_out_of_range(args, sample, sampling_params):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    return await post(url, {"text": "x", "sampling_params": {"repetition_penalty": 3}})


async def generate_without_log_probs(args, sample, sampling_params):
    sample.tokens, sample.response_length, sample.response = [1, 2], 1, "x"
    sample.status = Sample.Status.COMPLETED
    return sample


async def generate_nothing(args, sample, sampling_params):
    return None


def dynamic_filter(args, samples, **kwargs):
    rewards = [sample.get_reward_value(args) for sample in samples]
    keep = len(set(rewards)) > 1
    return DynamicFilterOutput(keep=keep, reason=None if keep else f"zero_std_{rewards[0]}")


def dynamic_filter_with_fallback(args, samples):
    return DynamicFilterOutput(keep=False, reason="short", keep_when_insufficient=True)


def dynamic_filter_that_says_false(args, samples):
    return False


def rollout_filter(args, groups):
    for group in groups:
        group[0].remove_sample = True


def pop_first(args, rollout_id, buffer, num_samples):
    assert rollout_id is None
    taken = buffer[:num_samples]
    del buffer[:num_samples]
    return taken


def newest_and_forget_the_rest(args, rollout_id, buffer, num_samples):
    taken = buffer[-num_samples:]
    buffer.clear()
    return taken


def filter_that_does_not_delete(args, rollout_id, buffer, num_samples):
    return buffer[:num_samples]


def filter_that_returns_too_many(args, rollout_id, buffer, num_samples):
    taken = list(buffer)
    buffer.clear()
    return taken


def filter_that_returns_copies(args, rollout_id, buffer, num_samples):
    return [list(group) for group in buffer[:num_samples]]


def post_process(args, samples):
    raw = [sample.reward for sample in samples]
    mean = sum(raw) / len(raw)
    return raw, [each - mean for each in raw]


def post_process_that_drops_one(args, samples):
    return [0.0] * len(samples), [0.0] * (len(samples) - 1)


class Counting(DataSource):
    """Prompts "0", "1", … with a position stored in a file, as in slime's source."""

    def __init__(self, args):
        self.args = args
        self.position = 0

    def get_samples(self, num_samples):
        groups = []
        for _ in range(num_samples):
            text = str(self.position)
            self.position += 1
            groups.append([Sample(prompt=text, label=text) for _ in range(self.args.n_samples_per_prompt)])
        return groups

    def add_samples(self, samples):
        raise RuntimeError("not used")

    def save(self, rollout_id):
        path = Path(self.args.save) / "rollout" / f"position_{rollout_id}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.position))

    def load(self, rollout_id=None):
        path = Path(self.args.load) / "rollout" / f"position_{rollout_id}.json"
        self.position = json.loads(path.read_text())

    def __len__(self):
        return 100


class ShortOfPrompts(Counting):
    def get_samples(self, num_samples):
        return super().get_samples(num_samples)[:-1]


class ShortestFirst(RolloutDataSource):
    """A curriculum: sorts the drawn groups."""

    def get_samples(self, num_samples):
        return sorted(super().get_samples(num_samples), key=lambda group: len(group[0].prompt))


class Returning(RolloutDataSourceWithBuffer):
    """Returns the first group of each draw to the buffer."""

    def get_samples(self, num_samples):
        groups = super().get_samples(num_samples)
        if self.get_buffer_length() == 0:
            self.add_samples(groups[:1])
        return groups


def take_nothing(args, rollout_id, buffer, num_samples):
    """A buffer filter that waits."""
    return []
