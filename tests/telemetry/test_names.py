from slime_core.telemetry import names


def test_evaluation_sets_are_told_from_their_details() -> None:
    metrics = {
        "eval/math": 0.5,
        "eval/math-500": 0.4,
        "eval/math-500-truncated_ratio": 0.1,
        "eval/math-500-pass@16": 0.9,
        "eval/math/response_len/mean": 40.0,
        "rollout/raw_reward": 0.3,
    }
    assert names.eval_datasets(metrics) == ["math", "math-500"]
    assert metrics[names.eval_reward("math-500")] == 0.4
