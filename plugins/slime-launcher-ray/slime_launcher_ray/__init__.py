"""slime-launcher-ray: the launcher `ray` runs worker groups as Ray actors in placement groups."""
