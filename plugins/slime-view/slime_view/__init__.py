"""View: run folders in a browser, while they grow: curves of their metrics, and every sample they hold.

    slime view runs/first runs/second

The command reads the folders and changes nothing in them; slime-core finds it in `slime_view.commands`.
"""
