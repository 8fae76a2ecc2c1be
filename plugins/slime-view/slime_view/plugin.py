"""The entry point. The plugin fills no role: it adds the commands `slime view` and `slime report`."""

SLIME_API = "1"
