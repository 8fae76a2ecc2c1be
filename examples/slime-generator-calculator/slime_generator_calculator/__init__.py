"""A generator for slime-core whose model has a calculator."""
