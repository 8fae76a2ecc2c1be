"""`python -m slime_core`: the same as `slime`."""

from slime_core.cli import main

if __name__ == "__main__":
    main()
