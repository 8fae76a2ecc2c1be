"""The parts of `slime_testing.fake_engine`: its HTTP, its script, its policy, its state and its endpoints."""
