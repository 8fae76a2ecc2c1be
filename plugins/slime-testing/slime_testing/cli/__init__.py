"""The commands of slime-testing: `slime doctor`, `slime reward`, `slime plugins check` and `slime plugins new`."""
