"""Parts of `slime_testing.fake_engine`: HTTP server, script, policy, state and endpoints."""
