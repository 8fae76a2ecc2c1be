"""Other frameworks: what TRL, OpenRLHF, verl and peft call our keys, so that who types one is told ours.

Example:

    called_here("learning-rate")        # "lr"
"""

OTHER_FRAMEWORKS: dict[str, str] = {
    "batch_size": "rollout_batch_size",
    "beta": "kl_loss_coef",
    "cliprange": "eps_clip",
    "clip_eps": "eps_clip",
    "clip_range": "eps_clip",
    "clip_ratio": "eps_clip",
    "clip_ratio_high": "eps_clip_high",
    "clip_ratio_low": "eps_clip",
    "dataset": "prompt_data",
    "dataset_name": "prompt_data",
    "entropy_coeff": "entropy_coef",
    "epochs": "num_epoch",
    "epsilon": "eps_clip",
    "epsilon_high": "eps_clip_high",
    "eval_dataset": "eval_prompt_data",
    "eval_steps": "eval_interval",
    "grad_clip": "clip_grad",
    "group_size": "n_samples_per_prompt",
    "init_kl_coef": "kl_coef",
    "kl_beta": "kl_loss_coef",
    "learning_rate": "lr",
    "lora": "lora_rank",
    "lora_r": "lora_rank",
    "lr_scheduler": "lr_decay_style",
    "lr_scheduler_type": "lr_decay_style",
    "max_completion_length": "rollout_max_response_len",
    "max_grad_norm": "clip_grad",
    "max_new_tokens": "rollout_max_response_len",
    "max_prompt_length": "rollout_max_prompt_len",
    "max_response_length": "rollout_max_response_len",
    "max_steps": "num_rollout",
    "max_tokens": "rollout_max_response_len",
    "min_p": "rollout_min_p",
    "model": "hf_checkpoint",
    "model_name": "hf_checkpoint",
    "model_name_or_path": "hf_checkpoint",
    "model_path": "hf_checkpoint",
    "num_epochs": "num_epoch",
    "num_generations": "n_samples_per_prompt",
    "num_train_epochs": "num_epoch",
    "output_dir": "save",
    "pretrain": "hf_checkpoint",
    "ref_model": "ref_load",
    "reward_funcs": "reward",
    "reward_function": "reward",
    "rollout_n": "n_samples_per_prompt",
    "save_steps": "save_interval",
    "save_total_limit": "save_keep",
    "steps": "num_rollout",
    "stop": "rollout_stop",
    "target_modules": "lora_target_modules",
    "temperature": "rollout_temperature",
    "top_k": "rollout_top_k",
    "top_p": "rollout_top_p",
    "total_epochs": "num_epoch",
    "train_dataset": "prompt_data",
    "use_gradient_checkpointing": "gradient_checkpointing",
    "warmup_ratio": "lr_warmup_fraction",
    "warmup_steps": "lr_warmup_iters",
}
"""Our key by the name that others have for it, or for the closest thing to it."""


def called_here(name: str) -> str | None:
    """Our key for a name from elsewhere, in any case and with '-' or '_'; None for a name that is none of these."""
    return OTHER_FRAMEWORKS.get(name.lower().replace("-", "_"))
