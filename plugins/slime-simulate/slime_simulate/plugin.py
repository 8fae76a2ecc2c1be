"""The entry point. The plugin fills no role: it adds the command `slime simulate`."""

SLIME_API = "1"
