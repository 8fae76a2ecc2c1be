"""The parts of `slime_core.testing.fake_engine`: its HTTP, its script, its policy, its state and its endpoints."""
