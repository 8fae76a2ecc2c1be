"""Publishing weights over a process group that the fleet and the receiving servers share."""
