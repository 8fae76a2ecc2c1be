"""One hypothesis profile for all tests: no deadlines, because nothing here asserts a time."""

from hypothesis import settings

settings.register_profile("slime", deadline=None)
settings.load_profile("slime")
