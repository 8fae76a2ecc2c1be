"""Parts of `slime_testing.fake_engine`: HTTP, script, policy, state and endpoints."""
