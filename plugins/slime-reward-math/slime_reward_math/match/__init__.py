"""Decides whether two trees are the same answer, rule by rule."""
