"""Names from elsewhere: what slime, TRL, verl, OpenRLHF and peft call keys and flags, and what those are here.

An error names our key, or what to do instead. A name that means exactly the same is taken.

    $ slime train run.toml --learning-rate 1e-5
    Error: No such option '--learning-rate'. Did you mean '--lr'?
"""

from collections.abc import Iterator, Mapping
from functools import partial

from slime_compat.flags.table import Outcome, Takes, advice, flags, key_of, meaning
from slime_core.roles import ForeignName

KEYS: Mapping[str, Mapping[str, str]] = {
    "TRL": {
        "adam_epsilon": "adam_eps",
        "beta": "kl_loss_coef",
        "cliprange": "eps_clip",
        "dataset_name": "prompt_data",
        "epsilon": "eps_clip",
        "epsilon_high": "eps_clip_high",
        "eval_dataset": "eval_prompt_data",
        "eval_steps": "eval_interval",
        "learning_rate": "lr",
        "lora_r": "lora_rank",
        "lr_scheduler_type": "lr_decay_style",
        "max_completion_length": "rollout_max_response_len",
        "max_grad_norm": "clip_grad",
        "max_prompt_length": "rollout_max_prompt_len",
        "max_steps": "num_rollout",
        "model_name_or_path": "hf_checkpoint",
        "num_generations": "n_samples_per_prompt",
        "num_train_epochs": "num_epoch",
        "output_dir": "save",
        "ref_model": "ref_load",
        "report_to": "tracker",
        "reward_funcs": "reward",
        "save_steps": "save_interval",
        "save_total_limit": "save_keep",
        "train_dataset": "prompt_data",
        "warmup_ratio": "lr_warmup_fraction",
        "warmup_steps": "lr_warmup_iters",
    },
    "verl": {
        "adv_estimator": "advantage_estimator",
        "clip_ratio": "eps_clip",
        "clip_ratio_c": "eps_clip_c",
        "clip_ratio_high": "eps_clip_high",
        "clip_ratio_low": "eps_clip",
        "default_local_dir": "save",
        "entropy_coeff": "entropy_coef",
        "grad_clip": "clip_grad",
        "lam": "lambd",
        "max_response_length": "rollout_max_response_len",
        "n_gpus_per_node": "actor_num_gpus_per_node",
        "nnodes": "actor_num_nodes",
        "prompt_key": "input_key",
        "rollout_n": "n_samples_per_prompt",
        "save_freq": "save_interval",
        "test_freq": "eval_interval",
        "total_epochs": "num_epoch",
        "total_training_steps": "num_rollout",
        "train_batch_size": "rollout_batch_size",
        "train_files": "prompt_data",
        "val_files": "eval_prompt_data",
    },
    "OpenRLHF": {
        "actor_learning_rate": "lr",
        "clip_eps": "eps_clip",
        "critic_learning_rate": "critic_lr",
        "generate_max_len": "rollout_max_response_len",
        "init_kl_coef": "kl_coef",
        "l2": "weight_decay",
        "lr_scheduler": "lr_decay_style",
        "max_norm": "clip_grad",
        "num_episodes": "num_epoch",
        "pretrain": "hf_checkpoint",
        "prompt_max_len": "rollout_max_prompt_len",
        "save_path": "save",
        "vllm_num_engines": "rollout_num_engines",
        "vllm_tensor_parallel_size": "rollout_num_gpus_per_engine",
    },
    "peft": {
        "r": "lora_rank",
        "target_modules": "lora_target_modules",
        "use_gradient_checkpointing": "gradient_checkpointing",
    },
    "": {
        "batch_size": "rollout_batch_size",
        "clip_range": "eps_clip",
        "dataset": "prompt_data",
        "epochs": "num_epoch",
        "group_size": "n_samples_per_prompt",
        "kl_beta": "kl_loss_coef",
        "lora": "lora_rank",
        "max_new_tokens": "rollout_max_response_len",
        "max_tokens": "rollout_max_response_len",
        "min_p": "rollout_min_p",
        "model": "hf_checkpoint",
        "model_name": "hf_checkpoint",
        "model_path": "hf_checkpoint",
        "num_epochs": "num_epoch",
        "reward_function": "reward",
        "steps": "num_rollout",
        "stop": "rollout_stop",
        "temperature": "rollout_temperature",
        "top_k": "rollout_top_k",
        "top_p": "rollout_top_p",
    },
}
"""Our key, or the closest thing to it, by framework and name."""

_SCHEDULES = {
    "constant_with_warmup": "constant",
    "inverse_sqrt": "inverse-square-root",
    "warmup_stable_decay": "WSD",
    "cosine_with_min_lr": "cosine",
}
VALUES: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("TRL", "lr_scheduler_type"): _SCHEDULES,
    ("OpenRLHF", "lr_scheduler"): _SCHEDULES,
    ("verl", "adv_estimator"): {"gae": "ppo"},
}
"""What values are here, by framework and name, where they differ."""

INSTEAD: Mapping[str, Mapping[str, str]] = {
    "TRL": {
        "gradient_accumulation_steps": "a step takes all its groups, in micro-batches of "
        "trainer.local.max_tokens_per_micro_batch tokens; rollout_batch_size and num_steps_per_rollout say how many",
        "mask_truncated_completions": '[sample_filter] use = "truncated", or --sample-filter truncated; where the loss '
        "is a mean over samples, it counts those that are left",
        "num_iterations": "a group is trained on once; num_steps_per_rollout deals a rollout's groups to several steps",
        "per_device_train_batch_size": "rollout_batch_size counts the groups of a rollout, over all ranks",
        "resume_from_checkpoint": "a run continues where its folder (save) is: call slime train again, or slime resume",
        "use_vllm": "what generates is chosen by [engine] use, or --engine",
    },
    "verl": {
        "loss_agg_mode": "token-mean is calculate_per_token_loss = true, seq-mean-token-mean its absence",
        "ppo_mini_batch_size": "num_steps_per_rollout is rollout_batch_size / ppo_mini_batch_size",
        "rollout_is": '[correction] use = "mis", with mis_level = "token" or "sequence"; mis_mode = "none": no weights',
        "rollout_is_threshold": '[correction] use = "mis", with mis_upper_bound',
        "rollout_rs_threshold": "rollout_rs of the correction mis has the bounds in it: {seq_mean_k1 = [0.99, 1.01]}",
        "use_kl_in_reward": "kl_coef above 0 takes the KL off the rewards, use_kl_loss = true adds it to the loss",
    },
    "OpenRLHF": {
        "adam_betas": "give adam_beta1 and adam_beta2",
        "dynamic_filtering": '[group_filter] use = "nonzero_std", or --group-filter nonzero_std',
        "micro_train_batch_size": "trainer.local.max_tokens_per_micro_batch bounds a micro-batch by its tokens",
        "remote_rm_url": '[reward] use = "remote_rm", of slime-reward-math',
    },
    "peft": {"lora_dropout": "there is no dropout: the ratio to the sampler would not be that of one model"},
}
"""What to do instead, by framework and name."""


def foreign_names() -> Iterator[ForeignName]:
    """All of them, by framework."""
    yield from slime_names()
    for framework, keys in KEYS.items():
        for name, key in keys.items():
            values = VALUES.get((framework, name), {})
            yield ForeignName(name, key, framework=framework, values=values)
    for framework, instead in INSTEAD.items():
        for name, text in instead.items():
            yield ForeignName(name, framework=framework, advice=text)


def slime_names() -> Iterator[ForeignName]:
    """Flags of slime that are written otherwise here; those that are not among them are keys of the same name."""
    for name, flag in flags().items():
        if flag.outcome is Outcome.SAME or name in KEYS[""]:
            continue
        values = {value: ours for value, ours in flag.values.items() if isinstance(ours, str) and ours != value}
        key = key_of(flag)
        means = partial(meaning, flag) if flag.outcome is Outcome.MAPPED and not flag.asks else None
        yield ForeignName(
            name,
            key,
            framework="slime",
            values=values if key else {},
            advice=advice(flag),
            means=means,
            is_switch=flag.takes is Takes.NOTHING,
        )
