"""Nothing here asserts a time."""

from hypothesis import settings

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
