"""View: run folders in a browser, live: curves of their metrics, and every sample.

    slime view runs/first runs/second

The command reads the folders and changes nothing in them; slime-core finds it in `slime_view.commands`.
"""
