"""What slime-core is told: the plugin is there. It fills no role; it brings the command `slime view`."""

SLIME_API = "1"
