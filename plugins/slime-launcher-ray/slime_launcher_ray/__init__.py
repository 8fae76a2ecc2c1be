"""slime-launcher-ray: the launcher `ray`, worker groups as Ray actors in placement groups."""
